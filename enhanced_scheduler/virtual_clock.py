"""The clock of the fixture `scheduler`, which a test can move. The program that moves it is the application's."""

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from enhanced_scheduler import application

PROGRAM = "services/cli/virtual_time/server.py"
PATIENCE_SECONDS = 60.0


class ClockStands(RuntimeError):
    """The clock could not be moved; the message names what it waited for."""


class Beside:
    """A process of the application that answers questions for as long as the test run lasts."""

    def __init__(self, directory: Path, settings: Mapping[str, str], clock_file: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            application.command(PROGRAM, str(clock_file), dies_with=os.getpid()),
            cwd=directory,
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ClockStands("the program beside the test has no pipes")
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = stdout.readline()
        if not line:
            raise ClockStands("the program beside the test has ended; its output on stderr says why")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClockStands(answer["error"])
        return answer

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


class Clock:
    """The time that Postgres and the replica read. It runs on by itself, and a test can move it forward.

    Virtual: when schedules fire, misfire grace, backoff of retries, retention, every instant that is stored. Real: how
    long a handler takes, its timeout, heartbeats, and the clock of the handler's own process.
    """

    def __init__(self, beside: Beside) -> None:
        self._ask = beside.ask

    def now(self) -> datetime:
        return datetime.fromisoformat(self._ask(now=True)["now"])

    def move(self, *, patience_seconds: float = PATIENCE_SECONDS, **duration: float) -> list[dict[str, Any]]:
        """`move(hours=1)`: every fire of that hour runs at its own instant, retries included, one after the other.

        Returns the executions that ended on the way, in the order of their fires. Raises ClockStands if an instant's
        executions have not ended after so many real seconds.
        """
        return self.move_to(self.now() + timedelta(**duration), patience_seconds=patience_seconds)

    def move_to(self, instant: datetime, *, patience_seconds: float = PATIENCE_SECONDS) -> list[dict[str, Any]]:
        """The same, up to and including an instant."""
        if instant.tzinfo is None:
            raise ValueError(f"{instant} has no time zone")
        if instant < (now := self.now()):
            raise ValueError(f"the clock goes forward only: it is {now.isoformat(timespec='seconds')}")
        answer = self._ask(move_to=instant.isoformat(), patience_seconds=patience_seconds)
        return [{**row, "scheduled_for": datetime.fromisoformat(row["scheduled_for"])} for row in answer["ended"]]
