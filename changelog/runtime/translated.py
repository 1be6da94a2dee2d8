"""A command that knows the options of the programs which it replaces, and says its own for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar

from typer._click.exceptions import NoSuchOption
from typer.core import TyperCommand

from changelog.contract.base.errors import ConfigurationError

if TYPE_CHECKING:
    from typer._click import Context


Command = TypeVar("Command", bound=Callable[..., None])
_OTHERS = "others"


class TranslatingCommand(TyperCommand):
    """Refuses an option of another program with a line that says what to write instead."""

    others: ClassVar[Mapping[str, str]] = {}
    """What stands for options of other programs, each by one of its spellings."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Read the options; raises ConfigurationError if one is that of another program."""
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as error:
            instead = self.others.get(error.option_name)
            if instead is None:
                raise
            raise ConfigurationError(
                f"{error.option_name} is no option of `{ctx.command_path}`", hint=instead
            ) from None


def translating(others: Mapping[str, str]) -> Callable[[Command], Command]:
    """Equip a command that joins by an entry point with what stands for options of others."""

    def equip(command: Command) -> Command:
        setattr(command, _OTHERS, others)
        return command

    return equip


def class_of(command: Callable[..., None]) -> type[TyperCommand]:
    """Return the class of a command, by what `translating` has attached to it."""
    others = getattr(command, _OTHERS, None)
    if others is None:
        return TyperCommand
    return type("Translating", (TranslatingCommand,), {_OTHERS: others})
