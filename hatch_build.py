"""The dependencies of the wheel: those of the requirements files, so that each version number stands in one place.

A line `# extra: web` in requirements.txt begins the packages of that extra; what stands before the first is the base.
"""

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FILES = {
    "async": "requirements-async.txt",
    "apprise": "requirements-apprise.txt",
    "browser": "requirements-browser.txt",
    "celery": "requirements-celery.txt",
    "embedded": "requirements-run.txt",
}
INCLUDES = {"workflows": "scan", "browser": "scan", "web": "workflows"}  # in this order
BEGIN = "# extra: "


class CustomMetadataHook(MetadataHookInterface):
    """Hatchling calls it when it builds (pyproject.toml)."""

    def update(self, metadata: dict[str, Any]) -> None:
        groups = dependencies(Path(self.root))
        metadata["dependencies"] = groups.pop("")
        metadata["optional-dependencies"] = groups


def dependencies(root: Path) -> dict[str, list[str]]:
    """Extra -> its requirements; the base is under the empty name."""
    groups: dict[str, list[str]] = {"": []}
    name = ""
    for line in _lines(root / "requirements.txt"):
        if line.startswith(BEGIN):
            name = line.removeprefix(BEGIN)
            groups[name] = []
        elif not line.startswith("#"):
            groups[name].append(line)
    for extra, file in FILES.items():
        groups[extra] = [line for line in _lines(root / file) if not line.startswith(("#", "-r"))]
    for extra, other in INCLUDES.items():
        groups[extra] = [*groups[other], *groups[extra]]
    return groups


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
