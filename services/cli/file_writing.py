"""Atomic file writes: the command's output file is complete or absent."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from services.errors import InvalidInput, Problem


@contextmanager
def replacing(file: Path) -> Iterator[IO[str]]:
    """A file that takes its name only when it is complete; pipes and devices are written to as they are."""
    try:
        target = file.resolve()  # replaces the link's target, not the link
        if target.exists() and not target.is_file():
            with target.open("w", encoding="utf-8") as stream:
                yield stream
            return
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        try:
            with partial.open("x", encoding="utf-8") as stream:
                yield stream
            if target.exists():
                shutil.copymode(target, partial)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InvalidInput(Problem(str(file), f"cannot be written: {reason}")) from None
