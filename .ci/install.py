"""pip install, with one line that says what it is doing: python .ci/install.py WHAT -r requirements.txt

Needs nothing but Python: it runs before anything is installed. If pip fails, everything that it said is shown.
"""

import re
import subprocess
import sys
import threading
import time

STEP = re.compile(r" *(Collecting|Downloading|Building|Installing) (.*)")
REFRESH_SECONDS = 0.5
LINE_SECONDS = 5.0  # between two lines where there is no terminal
COLUMNS = 78


class Progress:
    def __init__(self, what: str) -> None:
        self._what, self._begun, self._shown_at = what, time.monotonic(), 0.0
        self._terminal = sys.stdout.isatty()

    def show(self, said: list[str]) -> None:
        """How long, how many packages so far, and what pip does right now."""
        steps = [found for line in said if (found := STEP.match(line))]
        packages = sum(step[1] == "Collecting" for step in steps)
        name = steps[-1][2].split("/")[-1].strip() if steps else ""
        doing = f"unpacking {packages} packages" if steps and steps[-1][1] == "Installing" else name
        text = f"  {self.seconds:3.0f} s, package {packages}: {doing}"[:COLUMNS]
        if self._terminal:
            self._write(f"\r\033[K{text}")
        elif time.monotonic() - self._shown_at >= LINE_SECONDS:
            self._write(f"{text}\n")
            self._shown_at = time.monotonic()

    def end(self, words: str) -> None:
        self._write(f"\r\033[K{words}\n" if self._terminal else f"{words}\n")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def main(what: str, *arguments: str) -> int:
    progress = Progress(what)
    said: list[str] = []
    progress.end(f"installing {what} with pip (once; a minute or two) ...")
    pip_install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    pip = subprocess.Popen([*pip_install, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603
    reader = threading.Thread(target=lambda: said.extend(pip.stdout or ()))  # line by line, as they come
    reader.start()
    while reader.is_alive():
        reader.join(REFRESH_SECONDS)
        progress.show(list(said))
    if pip.wait() != 0:
        progress.end("pip failed:\n" + "".join(said).rstrip())
        return 1
    progress.end(f"installed {what} in {progress.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
