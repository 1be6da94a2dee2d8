"""The command `changelog`: its commands by name, each loaded when it is named.

Help lists what the sources of the commands say, without loading one: settings alone, with what
declares them, cost more than all that a list needs. Commands of later stages (`verify`, `demo`,
`init`) join through the entry-point group `changelog.commands`, so that this package imports
nothing of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from changelog.runtime.edge import run_app
from changelog.runtime.examples import epilog_of
from changelog.runtime.installed.joined import Joined, described, joined
from changelog.runtime.options import VersionOption
from changelog.runtime.translated import class_of

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

_CAPTURE = ("capture", "resnapshot", "status")
_APPS = ("slot", "ddl", "signal")
_OWN = {
    **{name: Joined(name, "changelog.commands", name) for name in _CAPTURE},
    **{name: Joined(name, "changelog.commands", f"{name}_app") for name in _APPS},
}
_NEIGHBOURS = (
    Joined("stack", "changelog.stack.cli", "app"),
    Joined("read", "changelog.lines.cli", "read"),
    Joined("write", "changelog.lines.cli", "write"),
    Joined("serve", "changelog.connect.cli", "serve"),
    Joined("load", "changelog.load.cli", "load"),
    Joined("publish", "changelog.publish.cli", "publish"),
)


class _Subject(NamedTuple):
    """Commands that help lists together, and an example of one."""

    title: str
    commands: tuple[str, ...]
    example: str


_SUBJECTS = (
    _Subject("Begin, and look", ("init", "stack", "demo", "doctor"), "changelog stack up"),
    _Subject(
        "The log",
        ("capture", "status", "verify", "archive", "resnapshot", "signal", "ddl", "slot"),
        "changelog capture --until now",
    ),
    _Subject(
        "Views, built by rebuild-view",
        ("test", "wait", "push", "spark-server"),
        "rebuild-view --all --plan",
    ),
    _Subject(
        "Topics and connectors",
        ("topics", "read", "write", "load", "publish", "serve"),
        "changelog read orders --until end",
    ),
    _Subject("Away", ("erase", "teardown"), "changelog teardown --plan"),
)


class _ByName(TyperGroup):
    """A group whose commands are loaded when they are named, not when they are listed."""

    _lists = False

    def list_commands(self, ctx: Context) -> list[str]:
        return [*_OWN, *sorted(_others())]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        entry = _OWN.get(cmd_name) or _others().get(cmd_name)
        if entry is None:
            return None
        help_text = described(entry) if self._lists else None
        if help_text is None:
            return _loaded(entry)
        first = " ".join(help_text.partition("\n\n")[0].split())
        return TyperCommand(entry.name, help=help_text, short_help=first)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """List the commands by subject, each with an example; the others at the end."""
        remaining = dict.fromkeys(self.list_commands(ctx))
        for title, names, example in (*_SUBJECTS, _Subject("More", (), "")):
            chosen = [name for name in (names if example else [*remaining]) if name in remaining]
            if chosen:
                with formatter.section(title):
                    self._list(ctx, formatter, chosen)
                    if example:
                        formatter.write_text(f"$ {example}")
            for name in chosen:
                del remaining[name]

    def _list(self, ctx: Context, formatter: HelpFormatter, names: Sequence[str]) -> None:
        limit = formatter.width - 6 - max(map(len, names))
        commands = {name: self.get_command(ctx, name) for name in names}
        formatter.write_dl(
            [
                (name, command.get_short_help_str(limit))
                for name, command in commands.items()
                if command
            ]
        )

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the help: to load all that it lists would take seconds."""
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False


@cache
def _others() -> dict[str, Joined]:
    return {entry.name: entry for entry in (*_NEIGHBOURS, *joined("changelog.commands"))}


@cache
def _loaded(entry: Joined) -> Command:
    command: Callable[..., None] | typer.Typer = entry.load()
    if entry.name in _CAPTURE:
        of_capture: typer.Typer = Joined(entry.name, entry.module, "app").load()
        return get_command(of_capture).commands[entry.name]  # type: ignore[attr-defined,no-any-return]
    if isinstance(command, typer.Typer):
        return get_group(command)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name=entry.name, cls=class_of(command), epilog=epilog_of(command))(command)
    return get_command(alone)


app = typer.Typer(
    cls=_ByName,
    help="PostgreSQL changes on compacted Kafka topics, replayable for ever.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # what would draw boxes takes longer to load than all the rest
)


@app.callback()
def changelog(version: VersionOption = False) -> None:
    """Take the options of all commands."""


def main() -> None:
    """Run the command line."""
    run_app(app, "changelog")
