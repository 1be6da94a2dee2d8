"""The commands of capture: their options and help. Each imports what it needs when it is called."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

import typer

from changelog.config import BROKERS, SOURCE, Project, load_project, source_names
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.form import Envelope, Output
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import LogFormat, bar_console, print_json, stop_on_signals, tell
from changelog.runtime.examples import examples
from changelog.runtime.imports import begin_to_import
from changelog.runtime.options import (
    MAX_FRONTIER_AGE_S,
    TOLD,
    AllSourcesOption,
    DebugOption,
    JsonOption,
    ProjectOption,
)
from changelog.runtime.setting import Given
from changelog.runtime.telemetry import METRICS, is_asked_for
from changelog.runtime.terminal import console
from changelog.runtime.translated import TranslatingCommand
from changelog.sections import SLOT, CaptureSettings, Kafka, Postgres, Registry

if TYPE_CHECKING:
    from changelog.capture.state.report import CaptureReport
    from changelog.postgres.connection import Connection


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")
slot_app = typer.Typer(
    help="The replication slot at the source.", no_args_is_help=True, rich_markup_mode="markdown"
)
ddl_app = typer.Typer(
    help="The event triggers at the source that tell of schema changes.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
signal_app = typer.Typer(
    help="The table at the source whose rows ask capture for something.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def _tell_settings(is_asked: bool) -> None:
    if is_asked:
        from changelog.native.properties import client_properties
        from changelog.reference import settings_text

        print(settings_text([Postgres, Kafka, Registry, CaptureSettings]), end="")
        print("-T takes Kafka's settings of topics; -C librdkafka's of producers (P and *):\n")
        print(client_properties(), end="")
        raise typer.Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    """Options of one run of capture, besides the settings."""

    subjects: ClassVar[Mapping[str, str]] = {
        "until": "This run",
        "config_help": TOLD,
    }
    until: Annotated[
        str | None,
        typer.Option("--until", help="`now` or an LSN: end with 0 once the log holds all to it."),
    ] = None
    check: Annotated[
        bool, typer.Option("--check", help="Say what would go wrong or be made; make nothing.")
    ] = False
    print_lines: Annotated[
        bool,
        typer.Option(
            "--print", help="Changes to standard output, a JSON object a line; without Kafka."
        ),
    ] = False
    into: Annotated[
        Path | None,
        typer.Option("--into", help="The same to a file, which the next start goes on with."),
    ] = None
    all_sources: AllSourcesOption = False
    yes: Annotated[bool, typer.Option("--yes", help="Alter tables without asking.")] = False
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End at once when a server does not answer: --wait 0.")
    ] = False
    config_help: Annotated[
        bool,
        typer.Option(
            "--config-help",
            callback=_tell_settings,
            is_eager=True,
            help="Print all settings: meaning, default, key in the file, variable, option; and "
            "the client's properties.",
        ),
    ] = False
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve Prometheus metrics there."),
    ] = None
    metrics_address: Annotated[
        str, typer.Option("--metrics-address", help="Where metrics are served.")
    ] = "127.0.0.1"
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Log lines as text, or as JSON objects.")
    ] = LogFormat.TEXT
    as_json: JsonOption = False
    debug: DebugOption = False


_SERVER = "-d postgresql://USER@HOST:PORT/DATABASE names the server"
_ALONE = "leave it out"


class _Capture(TranslatingCommand):
    """`capture`, which knows what Bottled Water, its forks and pg_recvlogical have instead."""

    others: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("-k", "--key"),
            "--key-index schema.table=INDEX keys a table by a unique index; a primary key and a "
            "replica identity need no option",
        ),
        "-i": "--tables 'schema.table', * for any text, several by commas",
        **dict.fromkeys(("-o", "--schemas"), "--tables 'schema.*', several by commas"),
        **dict.fromkeys(("-a", "--order-by"), f"{_ALONE}: rows are copied as they lie"),
        **dict.fromkeys(("-g", "--config-file"), "changelog.toml in the folder of --project"),
        "-S": "-s SLOT, or --slot SLOT",
        "--start": f"{_ALONE}: --print streams to standard output, --into FILE to a file",
        "--file": "--into FILE, or --print for standard output",
        "--drop-slot": "`changelog slot drop --slot SLOT`",
        "--if-not-exists": f"{_ALONE}: a slot that is there is gone on with",
        **dict.fromkeys(("-P", "--plugin"), f"{_ALONE}: the plugin is pgoutput"),
        "--option": f"{_ALONE}: --tables, --operations and --publication say what is sent",
        **dict.fromkeys(("-I", "--startpos"), "--start-lsn LSN, of a slot that is there"),
        **dict.fromkeys(("-E", "--endpos"), "--until LSN"),
        **dict.fromkeys(("-F", "--fsync-interval"), f"{_ALONE}: --into FILE syncs each second"),
        **dict.fromkeys(("-n", "--no-loop"), "--no-wait, or --wait SECONDS"),
        **dict.fromkeys(("--dbname", "-U", "--username", "--host", "--port"), _SERVER),
        **dict.fromkeys(
            ("-w", "--no-password", "-W", "--password"), "PGPASSWORD, ~/.pgpass or -d have it"
        ),
        **dict.fromkeys(("-v", "--verbose"), "--debug"),
    }


@app.command(
    cls=_Capture,
    epilog=examples(
        "`changelog capture` with the settings of changelog.toml, until it is stopped",
        "`changelog capture --until now` ends with 0 once all is on the log that was there",
        "`changelog capture --tables 'public.*' --exclude public.history --check` makes nothing, "
        "and says what it would meet",
        "`changelog capture -d postgresql://me@db/shop --print` needs no Kafka: a JSON object a "
        "line",
    ),
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings))
def capture(project: ProjectOption = Path(), *, options_given: Given, options: _RunOptions) -> None:
    """Snapshot the tables, then stream every change, until stopped.

    The log is resumed where it ends: stop and start this as often as you like. SIGTERM and
    Ctrl-C stop it cleanly. A broker, registry or database that goes away is waited for; one that
    is away at the start for a minute (`--wait`).
    """
    names = _several(project, options_given, all_of_them=options.all_sources)
    if names:
        _capture_together(names, options)
    overrides = {**options_given, "capture.wait_s": 0} if options.no_wait else options_given
    if options.print_lines or options.into is not None:
        _write_lines(project, overrides, options)
        return
    settings = load_project(project, overrides=overrides)
    _check_limit(settings)
    if options.check:
        _check(settings, as_json=options.as_json)
        return
    report = _captured(settings, options)
    if options.as_json:
        print_json(report.to_json())
    else:
        tell(report.summary())


def _check_limit(settings: Project) -> None:
    """Check that a limit of excluded tables has something to count.

    Raises ConfigurationError: the first table that cannot be captured ends capture.
    """
    if settings.capture.error_limit is not None and settings.capture.on_error != "log":
        raise ConfigurationError(
            "capture.error_limit (--error-limit) counts the tables that --on-error log excludes, "
            "and would have no effect without it",
            hint="add --on-error log, or leave it out",
        )


def _several(project: Path, options_given: Given, *, all_of_them: bool) -> tuple[str, ...]:
    """Return the sources that are asked for together; none for one, or the one that there is.

    Raises ConfigurationError: the project has no sources by name.
    """
    if not all_of_them:
        named = [name.strip() for name in str(options_given.get("capture.source") or "").split(",")]
        return tuple(named) if len(named) > 1 else ()
    names = source_names(project)
    if not names:
        raise ConfigurationError(
            "the project has no sources by name", hint="write [sources.NAME] in changelog.toml"
        )
    return names


def _capture_together(names: Sequence[str], options: _RunOptions) -> NoReturn:
    """Run one capture for each source, and end with the worst of their codes.

    Raises ConfigurationError: an option is for one capture alone.
    """
    from changelog.capture.loop.together import run_together

    alone = {"--into": options.into is not None, "--metrics-port": bool(options.metrics_port)}
    for option, is_given in alone.items():
        if is_given:
            raise ConfigurationError(
                f"{option} is for one source", hint="run a capture for each source: --source NAME"
            )
    raise typer.Exit(run_together(names, sys.argv[1:], stop_on_signals()))


def _write_lines(project: Path, options_given: Given, options: _RunOptions) -> None:
    """Capture without a log: changes as lines.

    Raises ConfigurationError: options contradict each other.
    """
    # The project's envelope is that of its topics: lines have another one where this run is told.
    envelope = options_given.get("capture.envelope") or Envelope.ROW
    overrides = {**options_given, "capture.envelope": envelope}
    settings = load_project(project, overrides=overrides, needs=[SOURCE])
    from changelog.capture.lines.command import check_given, check_options, line_run, opened
    from changelog.capture.lines.source import uses_given_slot
    from changelog.capture.loop.run import until_lsn

    check_given(options_given)
    temporary = options_given.get("capture.temporary_slot")
    is_temporary = options.into is None if temporary is None else bool(temporary)
    is_temporary &= not uses_given_slot(settings.capture)
    others = {"--check": options.check, "--metrics-port": options.metrics_port is not None}
    check_options(
        settings,
        into=options.into,
        prints=options.print_lines,
        as_json=options.as_json,
        temporary=is_temporary,
        others=[name for name, is_given in others.items() if is_given],
    )
    with opened(options.into) as target:
        run = line_run(
            settings,
            target,
            temporary=is_temporary,
            stop=stop_on_signals(),
            agreed=lambda names: options.yes or _agreed(names),
        )
        run.run(until_lsn(settings, options.until))
    if options.as_json:
        print_json(run.report.to_json())
    else:
        tell(run.report.summary())


def _captured(settings: Project, options: _RunOptions) -> CaptureReport:
    if settings.capture.form.output is Output.AVRO:
        begin_to_import("confluent_kafka.schema_registry")
    from changelog.capture.inspect.lineage import told_to_lineage
    from changelog.capture.loop.run import CaptureRun, until_lsn
    from changelog.capture.state.patience import Patience
    from changelog.capture.state.report import CaptureReport
    from changelog.runtime.process.garbage_collection import collect_rarely

    collect_rarely()
    report, stop = CaptureReport(), stop_on_signals()
    patience = Patience(settings.capture.wait_s, stop)
    run = CaptureRun(
        settings,
        report=report,
        stop=stop,
        console=bar_console(as_json=options.as_json),
        patience=patience,
        agreed=lambda names: options.yes or _agreed(names),
    )
    with (
        _metrics(settings, report, options.metrics_port, options.metrics_address),
        told_to_lineage(settings, report),
    ):
        run.run(patience.ask(lambda: until_lsn(settings, options.until)))
    return report


def _check(settings: Project, *, as_json: bool) -> None:
    from changelog.capture.inspect.check import check_capture

    findings = check_capture(settings)
    if as_json:
        print_json(findings.to_json())
    else:
        console.print(findings.table("What capture would meet; nothing was made"))
    if findings.exit_code:
        raise typer.Exit(findings.exit_code)


def _agreed(names: str) -> bool:
    """Ask whether tables may be altered; nobody answers where there is no terminal."""
    if not sys.stdin.isatty():
        return False
    # Ctrl-C ends a question as it ends any program.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(f"Give these tables REPLICA IDENTITY FULL: {names}?", err=True)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _metrics(
    settings: Project, report: CaptureReport, port: int | None, address: str
) -> Iterator[None]:
    if port is None and not is_asked_for(METRICS):
        yield
        return
    from changelog.capture.inspect import metrics

    groups = [group.slot for group in settings.capture.slot_groups]
    probe = metrics.SourceProbe(settings.postgres, settings.slot, groups)
    served = metrics.CaptureMetrics(report, probe, slot=settings.slot)
    with metrics.shown_metrics(served, port=port, address=address):
        yield


@app.command(
    epilog=examples(
        "`changelog resnapshot public.orders --wait` ends once readers see the fresh copy",
        "`changelog resnapshot 'sales.*'` for all captured tables of a schema",
    )
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(CaptureSettings, *SLOT))
def resnapshot(
    tables: Annotated[
        list[str], typer.Argument(help="Captured tables: schema.table, * for any text.")
    ],
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until a frontier speaks of the fresh copies.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have capture copy tables anew while it goes on, or at its next start.

    Readers see the old rows until all are copied; rows of before that are dead then, for good.
    """
    settings = load_project(project, overrides=overrides, needs=[SOURCE, BROKERS])
    from changelog.capture.inspect.resnapshot import ask_resnapshot, follow

    request = ask_resnapshot(settings, tables)
    tell(f"asked for {', '.join(map(str, request.tables))} at {request.lsn}")
    if not request.active:
        tell("no capture reads the slot now: the copy begins when one does")
    done = wait and follow(
        settings, request, console=bar_console(as_json=as_json), stop=stop_on_signals()
    )
    if as_json:
        print_json({**request.to_json(), "done": done})
    if wait and not done:
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "`changelog status` for people",
        "`changelog status --json --max-lag-bytes 1000000000 --max-frontier-age 120` for a monitor",
    )
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings, *SLOT))
def status(
    project: ProjectOption = Path(),
    *,
    options_given: Given,
    max_lag_bytes: Annotated[
        int | None,
        typer.Option("--max-lag-bytes", min=0, help="More WAL behind the frontier is a problem."),
    ] = None,
    max_frontier_age: Annotated[
        float,
        typer.Option("--max-frontier-age", min=0, help="An older frontier is one, in seconds."),
    ] = MAX_FRONTIER_AGE_S,
    allow_inactive: Annotated[
        bool, typer.Option("--allow-inactive", help="It is no problem that nobody reads the slot.")
    ] = False,
    all_sources: AllSourcesOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the slot, how far the log is behind, and what WAL is kept; ends with 1 on a problem.

    Takes a second, over which the rate of the WAL is measured.
    """
    from changelog.capture.inspect.status import Limits, capture_status
    from changelog.runtime.progress.bar import StepBar

    problems = False
    names = _several(project, options_given, all_of_them=all_sources) or [None]
    for place, name in enumerate(names, 1):
        named = {**options_given, "capture.source": name} if name else options_given
        settings = load_project(project, overrides=named, needs=[SOURCE, BROKERS])
        limits = Limits(
            max_lag_bytes=max_lag_bytes,
            max_frontier_age_s=max_frontier_age,
            allow_inactive=allow_inactive,
            temporary_slot=settings.capture.temporary_slot,
        )
        title = f"asking {name}, {place} of {len(names)} sources" if name else "asking"
        with StepBar(bar_console(as_json=as_json), title) as steps:
            state = capture_status(settings, limits, steps=steps)
        problems |= bool(state.problems)
        if as_json:
            print_json({"source": name, **state.to_json()} if name else state.to_json())
        else:
            console.print(state.table())
    if problems:
        raise typer.Exit(1)


@slot_app.command(
    "drop",
    epilog=examples("`changelog slot drop --slot old --yes` for a log that is no longer wanted"),
)
@takes(Chosen(Postgres), Chosen(CaptureSettings, "slot", "source"))
def slot_drop(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: DebugOption = False,
) -> None:
    """Drop the replication slot, so that PostgreSQL keeps no WAL for it.

    The next `changelog capture` takes a fresh snapshot under a new epoch.
    """
    settings = load_project(project, overrides=overrides, needs=[SOURCE])
    names = ", ".join(f'"{name}"' for name in settings.capture.slots)
    try:
        agreed = yes or typer.confirm(f"Drop slot {names}?", err=True)
    except typer.Abort:  # nobody is there to ask
        agreed = False
    if not agreed:
        raise ConfigurationError("not dropped", hint="--yes does not ask")
    from changelog.capture.inspect.status import drop_slot_of

    drop_slot_of(settings)
    console.print(f"slot {names} is dropped")


@ddl_app.command(
    "install",
    epilog=examples(
        "`changelog ddl install -d postgresql://postgres@db/shop` once, by a superuser; then "
        "`changelog capture --ddl`"
    ),
)
@takes(Chosen(Postgres), Chosen(CaptureSettings, "source"))
def ddl_install(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    debug: DebugOption = False,
) -> None:
    """Make the event triggers, in the schema `changelog`; needs a superuser.

    They write each command on a table into the WAL, for `changelog capture --ddl`.
    """
    from changelog.source.tables.ddl import install_ddl

    with _source(project, overrides) as connection:
        install_ddl(connection)
    console.print("schema changes are noted from now on")


@ddl_app.command(
    "remove", epilog=examples("`changelog ddl remove -d postgresql://postgres@db/shop`")
)
@takes(Chosen(Postgres), Chosen(CaptureSettings, "source"))
def ddl_remove(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    debug: DebugOption = False,
) -> None:
    """Remove the event triggers and their schema."""
    from changelog.source.tables.ddl import remove_ddl

    with _source(project, overrides) as connection:
        remove_ddl(connection)
    console.print("schema changes are no longer noted")


@signal_app.command(
    "install",
    epilog=examples("`changelog signal install` once, with the settings of changelog.toml"),
)
@takes(Chosen(Postgres), Chosen(CaptureSettings, "source"))
def signal_install(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    debug: DebugOption = False,
) -> None:
    """Make the table `changelog.changelog_signal`; each role that is to ask needs INSERT on it.

    A row asks the running capture: `resnapshot`, `pause`, `resume`, `checkpoint`.
    """
    from changelog.source.stream.signals import install_signals

    with _source(project, overrides) as connection:
        install_signals(connection)
    console.print("capture takes the rows of changelog.changelog_signal from now on")


@signal_app.command(
    "remove", epilog=examples("`changelog signal remove --source crm` of several sources one")
)
@takes(Chosen(Postgres), Chosen(CaptureSettings, "source"))
def signal_remove(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    debug: DebugOption = False,
) -> None:
    """Remove the signal table; a capture that is paused goes on."""
    from changelog.source.stream.signals import remove_signals

    with _source(project, overrides) as connection:
        remove_signals(connection)
    console.print("the signal table is removed")


@contextmanager
def _source(project: Path, overrides: Given) -> Iterator[Connection]:
    from changelog.source.connect.connect import connect

    settings = load_project(project, overrides=overrides, needs=[SOURCE])
    with closing(connect(settings.postgres)) as connection:
        yield connection
