"""A RabbitMQ of a test's own, from Debian's package: its node, ports and files are nobody else's, and no service runs.

with RabbitMQ.in_directory(tmp_path) as broker:
    broker.url
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.support.waiting import eventually

# Debian's /usr/sbin/rabbitmq-server changes the user and logs to /var/log; this is what it calls.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_SECONDS = 90
CONFIGURATION = """
listeners.tcp.1 = 127.0.0.1:{port}
num_acceptors.tcp = 2
loopback_users.guest = true
management_agent.disable_metrics_collector = true
log.console = false
"""


def why_not() -> str | None:
    """Why no RabbitMQ can be started here."""
    missing = [str(PROGRAM)] if not PROGRAM.exists() else []
    missing += [name for name in ("erl", "epmd") if shutil.which(name) is None]
    return f"RabbitMQ is not installed ({missing[0]}): apt-get install rabbitmq-server" if missing else None


@dataclass(slots=True)
class RabbitMQ:
    directory: Path
    port: int
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @classmethod
    @contextmanager
    def in_directory(cls, directory: Path) -> Iterator["RabbitMQ"]:
        """With a port mapper of its own, too: Erlang's would stay behind, on a port that all nodes share."""
        port, own_port, mapper_port = _free_ports(3)
        home = directory / "rabbitmq"
        home.mkdir()
        configuration = home / "rabbitmq.conf"
        configuration.write_text(CONFIGURATION.format(port=port))
        environment = {
            "PATH": os.defpath,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test-{uuid4().hex[:8]}@localhost",
            "RABBITMQ_DIST_PORT": str(own_port),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none.conf"),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": str(home / "broker.log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
        }
        mapper = subprocess.Popen(["epmd"], env=environment, stdin=subprocess.DEVNULL)
        broker = cls(home, port, environment)
        try:
            eventually(lambda: _listens(mapper_port), 10)
            broker.start()
            yield broker
        finally:
            broker.kill()
            mapper.kill()
            mapper.wait(30)

    def start(self) -> None:
        with (self.directory / "start.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(PROGRAM)],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the shell, the virtual machine and its helpers end together
            )
        eventually(lambda: self._fails() or _listens(self.port), START_SECONDS)

    def kill(self) -> None:
        """At once. Messages that have reached its disk are there again after a start."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def _fails(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "start.log").read_text()[-2000:]
        return False


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(number: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
