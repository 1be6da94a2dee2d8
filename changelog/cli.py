"""The command `changelog`.

Commands of later stages (`verify`, `demo`, `init`) join through the entry-point group
`changelog.commands`, so that this package imports nothing of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from changelog.capture.report import CaptureReport
from changelog.capture.run import CaptureRun, until_lsn
from changelog.capture.status import capture_status, drop_slot_of
from changelog.config import BROKERS, SOURCE, load_project
from changelog.contract.errors import ConfigurationError
from changelog.edge import console, print_json, run_app, stop_on_signals
from changelog.options import (
    BrokerOption,
    DebugOption,
    JsonOption,
    PostgresOption,
    PrefixOption,
    ProjectOption,
    RegistryOption,
    SlotOption,
    line_overrides,
)
from changelog.stack.cli import app as stack_app

if TYPE_CHECKING:
    from typer._click import Command, Context


class _WithJoined(TyperGroup):
    """A group whose further commands are loaded when they are named, and for `--help`."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_joined())]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        entry = _joined().get(cmd_name)
        return super().get_command(ctx, cmd_name) if entry is None else _loaded(entry)


@cache
def _joined() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="changelog.commands")}


@cache
def _loaded(entry: EntryPoint) -> Command:
    found: Callable[..., None] | typer.Typer = entry.load()
    if not isinstance(found, typer.Typer):
        command, found = found, typer.Typer(add_completion=False)
        found.command(name=entry.name)(command)
    return get_command(found)


app = typer.Typer(
    cls=_WithJoined,
    help="PostgreSQL changes on compacted Kafka topics, replayable for ever.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
slot_app = typer.Typer(help="The replication slot at the source.", no_args_is_help=True)
app.add_typer(stack_app, name="stack")
app.add_typer(slot_app, name="slot")


@app.command(
    epilog="Examples: `changelog capture` (settings of changelog.toml) · "
    "`changelog capture --tables 'public.*' --exclude public.history --until now`"
)
def capture(
    project: ProjectOption = Path(),
    postgres: PostgresOption = None,
    broker: BrokerOption = None,
    schema_registry: RegistryOption = None,
    slot: SlotOption = None,
    topic_prefix: PrefixOption = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", help="Tables to capture: schema.table, * for any text."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Tables to leave out; same patterns.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Partitions of a new topic.")
    ] = None,
    fix_topics: Annotated[
        bool | None,
        typer.Option("--fix-topics", help="Alter existing topics that have other settings."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", help="`now` or an LSN: end with 0 once the log holds all to it."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Snapshot the tables, then stream every change, until stopped.

    The log is resumed where it ends: stop and start this as often as you like. SIGTERM and
    Ctrl-C stop it cleanly. A broker, registry or database that goes away is waited for.
    """
    settings = load_project(
        project,
        overrides={
            **line_overrides(
                postgres=postgres,
                broker=broker,
                schema_registry=schema_registry,
                slot=slot,
                topic_prefix=topic_prefix,
            ),
            "capture.tables": _patterns(tables),
            "capture.exclude": _patterns(exclude),
            "capture.partitions": partitions,
            "capture.fix_topics": fix_topics,
        },
    )
    report = CaptureReport()
    run = CaptureRun(settings, report=report, stop=stop_on_signals(), console=console)
    run.run(until_lsn(settings, until))
    if as_json:
        print_json(report.to_json())
    else:
        console.print(report.summary(), highlight=False)


def _patterns(given: list[str] | None) -> list[str] | None:
    """Take `--tables a,b --tables c` as three patterns."""
    return [part.strip() for text in given for part in text.split(",")] if given else None


@app.command()
def status(
    project: ProjectOption = Path(),
    postgres: PostgresOption = None,
    broker: BrokerOption = None,
    schema_registry: RegistryOption = None,
    slot: SlotOption = None,
    topic_prefix: PrefixOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the slot, its lag, and the age of the last frontier."""
    settings = load_project(
        project,
        overrides=line_overrides(
            postgres=postgres,
            broker=broker,
            schema_registry=schema_registry,
            slot=slot,
            topic_prefix=topic_prefix,
        ),
        needs=[SOURCE, BROKERS],
    )
    found = capture_status(settings)
    if as_json:
        print_json(found.to_json())
    else:
        console.print(found.table())


@slot_app.command("drop")
def slot_drop(
    project: ProjectOption = Path(),
    postgres: PostgresOption = None,
    slot: SlotOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: DebugOption = False,
) -> None:
    """Drop the replication slot, so that PostgreSQL keeps no WAL for it.

    The next `changelog capture` takes a fresh snapshot under a new epoch.
    """
    overrides = line_overrides(postgres=postgres, slot=slot)
    settings = load_project(project, overrides=overrides, needs=[SOURCE])
    if not yes and not typer.confirm(f'Drop slot "{settings.slot}"?'):
        raise ConfigurationError("not dropped", hint="--yes does not ask")
    drop_slot_of(settings)
    console.print(f'slot "{settings.slot}" is dropped')


def main() -> None:
    """Run the command line."""
    run_app(app, "changelog")
