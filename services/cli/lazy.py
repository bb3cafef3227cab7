"""Lazy commands: each is imported when it is called. The list of commands and tab completion need only the names."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from enhanced_scheduler.extras import how_to_install, is_installed
from services.cli.output import ClearErrors
from services.errors import ConfigurationError
from services.telemetry.collection import no_collection


@dataclass(frozen=True, slots=True)
class Later:
    """One line in the list of commands. A test compares `help` with the command's docstring."""

    name: str
    target: str  # "module:attribute", a function or a Typer app
    help: str
    extras: tuple[str, ...] = ()  # of the distribution, without which the module cannot be imported


class _Listed(TyperCommand):
    """Placeholder for a command until it is called."""

    def __init__(self, later: Later) -> None:
        super().__init__(later.name, help=later.help)
        self._target, self._extras = later.target, later.extras

    def load(self) -> Any:
        if missing := [extra for extra in self._extras if not is_installed(extra)]:
            raise ConfigurationError(
                f"`{self.name}` needs the extra {' and '.join(map(repr, missing))}: run {how_to_install(*missing)}"
            )
        module, _, attribute = self._target.partition(":")
        with no_collection():
            found = getattr(import_module(module), attribute)
        parent = typer.Typer()
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=self.name)
        else:
            parent.command(self.name)(found)
        return typer.main.get_group(parent).commands[str(self.name)]


class LazyGroup(ClearErrors):
    """`get_command` is enough to list a command, `resolve_command` imports it."""

    later: tuple[Later, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.later:
            self.add_command(_Listed(command))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, _Listed):
            command = command.load()
            self.add_command(command)
            command = self.get_command(ctx, str(name))  # as it is shown
        return name, command, rest


def lazy(*later: Later) -> type[LazyGroup]:
    """A group class with these commands after its own."""
    return type("LazyGroup", (LazyGroup,), {"later": later})
