"""A command whose stderr is a pseudo-terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from config import PROJECT_ROOT


class InTerminal:
    """A running `manage.py …`."""

    def __init__(self, arguments: list[str], env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT_ROOT,
            env={**env, "PATH": os.defpath, "TERM": "xterm", "COLUMNS": "150"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)

    def finish(self) -> tuple[int, str, str]:
        """The exit code, the output, and the text on the terminal."""
        shown = self._read_all()
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output, shown

    def _read_all(self) -> str:
        """Reads until the last writer has closed it."""
        pieces = []
        with suppress(OSError):  # Linux raises it when no writer is left
            while piece := os.read(self._ours, 65_536):
                pieces.append(piece)
        os.close(self._ours)
        return b"".join(pieces).decode()
