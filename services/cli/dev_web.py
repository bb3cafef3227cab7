"""The web process of `manage.py dev`: start, announce, stop. The replicas do not need it."""

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config import HOME, PROJECT_ROOT, child_environment, get_settings
from services.cli.dev_replicas import ending_with_us, free_port
from services.embedded.files import tail

STOP_SECONDS = 15.0
ANY_PORT = 0


@dataclass(slots=True)
class WebProcess:
    """All calls come from the main thread."""

    log: Path
    environment: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    announced: bool = False
    way_in: str = "the dashboard is starting …"  # one line: its address and the token

    def start(self, port: int | None = None) -> None:
        self.announced = False
        chosen = free_port(get_settings().web_port, []) if port is None else port
        own = {"WEB_HOST": "127.0.0.1", "WEB_PORT": str(chosen)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [*ending_with_us(), sys.executable, str(PROJECT_ROOT / "manage.py"), "web"],
                cwd=HOME,
                env=child_environment(**self.environment, **own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def news(self) -> list[str]:
        """The dashboard's address and token, or why it failed; empty after the first time."""
        if self.announced or self.process is None:
            return []
        text = self.log.read_text(errors="replace")
        if address := re.search(r"serving on (\S+)", text):
            self.announced = True
            token = re.search(r"^once_\S+", text, re.MULTILINE)
            self.way_in = f"{address[1]} {f'token {token[0]}' if token else 'token: manage.py token create'}"
            log_in = f"log in with {token[0]}" if token else "log in with a token (manage.py token create)"
            return [f"dashboard: {address[1]}", log_in]
        if self.process.poll() is not None:
            if "WEB_PORT=" in text:  # taken by another process meanwhile
                self.start(ANY_PORT)
                return []
            self.announced, self.way_in = True, f"the dashboard failed to start; see {self.log}"
            return [f"the dashboard failed to start; the last line of `manage.py web`: {tail(self.log, 1)}"]
        return []

    def ask_project_again(self) -> None:
        """Its job types may have changed (services/jobs/users.py)."""
        if self.process is not None and self.is_alive:
            self.process.send_signal(signal.SIGHUP)

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
