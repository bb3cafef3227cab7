"""Which source files have changed? By looking at their times: works on network drives and in containers, too."""

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.errors import ConfigurationError

SUFFIX = ".py"
LEFT_OUT = ("__pycache__", "node_modules", "site-packages")
MOST_FILES = 20_000
SETTLED_SECONDS = 0.15  # between two looks that have to agree: an editor writes in several steps
LONGEST_SETTLING_SECONDS = 3.0
SHORTEST_INTERVAL_SECONDS = 0.3
LOOKS_SHARE = 20  # a look may take one part in so many of the time

Stamps = dict[str, tuple[int, int]]


@dataclass(slots=True)
class SourceFiles:
    """The modules below a directory, without hidden directories and virtual environments; and some single files."""

    root: Path
    others: Collection[Path] = ()
    interval_seconds: float = SHORTEST_INTERVAL_SECONDS
    _known: Stamps = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def learn(self) -> None:
        self._known = self._look()

    def changes(self) -> list[str]:
        """Files that were changed, added or removed since they were last asked about, once they stay as they are."""
        now = self._look()
        if now == self._known:
            return []
        until = time.monotonic() + LONGEST_SETTLING_SECONDS
        while time.monotonic() < until:
            time.sleep(SETTLED_SECONDS)
            before, now = now, self._look()
            if now == before:
                break
        known, self._known = self._known, now
        return sorted(path for path in known.keys() | now.keys() if known.get(path) != now.get(path))

    def _look(self) -> Stamps:
        begun = time.monotonic()
        found: Stamps = {}
        for entry in self._modules(str(self.root)):
            with suppress(FileNotFoundError):
                found[os.path.relpath(entry.path, self.root)] = _stamp(entry.stat())
            if len(found) > MOST_FILES:
                raise ConfigurationError(
                    f"{self.root} has more than {MOST_FILES} modules to watch: "
                    "set JOB_PROJECT to the project's directory"
                )
        for path in self.others:
            with suppress(FileNotFoundError):
                found[path.name] = _stamp(path.stat())
        self.interval_seconds = max(SHORTEST_INTERVAL_SECONDS, LOOKS_SHARE * (time.monotonic() - begun))
        return found

    def _modules(self, directory: str) -> Iterator["os.DirEntry[str]"]:
        try:
            entries = list(os.scandir(directory))
        except OSError:  # removed meanwhile, or not ours to read
            return
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            return
        for entry in entries:
            if entry.name.endswith(SUFFIX) and entry.is_file():
                yield entry
            elif not entry.name.startswith((".", *LEFT_OUT)) and entry.is_dir(follow_symlinks=False):
                yield from self._modules(entry.path)


def _stamp(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_mtime_ns, facts.st_size
