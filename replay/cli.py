"""The commands `changelog topics` and `changelog spark-server`.

Mounted through the entry-point group `changelog.commands`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from changelog.config import BROKERS, Project, load_project
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    NoFrontierError,
    UnavailableLogError,
    VerdictError,
)
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, say_error, stop_on_signals, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import (
    DebugOption,
    JsonOption,
    ProjectOption,
)
from changelog.runtime.progress.steps import Steps
from changelog.runtime.setting import Given
from changelog.sections import SLOT, CaptureSettings, Kafka, Registry
from replay.base.config import CONNECT_PORT
from replay.base.sections import Logs, Spark, warehouse_of

if TYPE_CHECKING:
    from replay.survey import TopicSurvey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """Changes to the named topics; without any of them the topics are only listed."""

    subjects: ClassVar[Mapping[str, str]] = {"create": "Topics and producers"}
    create: Annotated[
        bool,
        typer.Option("--create", help="Make them, with the settings of captured tables' topics."),
    ] = False
    unkeyed: Annotated[
        bool,
        typer.Option("--unkeyed", help="With --create: for records without keys, not compacted."),
    ] = False
    delete: Annotated[bool, typer.Option("--delete", help="Delete them, after asking.")] = False
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False


@with_examples(
    "`changelog topics` the topics of the captured tables; ends with 4 where one is not exact",
    "`changelog topics --all --json` every topic of the cluster, for a program",
    "`changelog topics --create prices --partitions 4` makes one as capture would",
)
@takes(
    Chosen(Kafka),
    Chosen(Registry),
    Chosen(CaptureSettings, *SLOT, "partitions", "replication_factor", "topic", "fix_topics"),
)
def topics(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC…", help="Topics of any kind; those of the captured tables when left out."
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="Every topic of the cluster.")] = False,
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    changes: _Changes,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say whether topics can still be read exactly, until when, and why not.

    Shows settings, offsets and how densely records stand (a few are read). A captured table is
    judged at its last frontier, also one that another capture writes and the project declares as a
    log; any other topic at its present end; of that, what its writers do is taken on trust. Ends
    with 4 when a captured table cannot be rebuilt exactly now.

    With --create or --delete, TOPIC… are made or deleted.
    """
    from changelog.runtime.progress.bar import StepBar
    from replay.survey import lines_of

    settings = load_project(project, overrides=overrides, needs=[BROKERS])
    if names and all_topics:
        raise ConfigurationError("name topics or give --all, not both")
    if changes.create or changes.delete:
        _change(settings, names or [], changes, as_json=as_json)
        return
    with StepBar(bar_console(as_json=as_json), "asking for") as steps:
        look = _look(settings, names or [], steps, all_topics=all_topics)
    record, surveys, gone = look.record, look.surveys, look.gone
    refused = [*gone, *(topic.state.topic for topic in surveys if topic.is_refused)]
    if as_json:
        print_json(
            {
                "frontier": None if record is None else str(record.frontier.lsn),
                "topics": [topic.to_json() for topic in surveys],
                "missing": gone,
                "schemas_unknown": look.schemas_unknown or None,
            }
        )
    else:
        for line in lines_of(surveys):
            tell(line)
        for topic in gone:
            tell(f"{topic}: table {record.frontier.tables[topic] if record else ''}, is gone")
        if look.schemas_unknown:
            tell(f"whether their records can be decoded is not known: {look.schemas_unknown}")
    if refused:
        say_error(
            VerdictError(
                f"{len(refused)} captured topics are not exact: {', '.join(refused)}",
                hint="each says above what to do",
            )
        )
        raise typer.Exit(VerdictError.exit_code)
    if look.is_registry_away:
        raise typer.Exit(UnavailableLogError.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicFacts:
    """Answers of the brokers and the registry."""

    record: FrontierRecord | None  # the frontier of the project's capture, or None
    surveys: list[TopicSurvey]  # the state of each topic
    gone: list[str]  # the captured topics that are gone
    schemas_unknown: str  # why the registry was not asked for the schemas; empty where it was
    is_registry_away: bool  # whether it was asked and did not answer


def _look(settings: Project, names: list[str], steps: Steps, *, all_topics: bool) -> _TopicFacts:
    """Ask the brokers about the topics, and the registry for the schemas of captured ones.

    Raises ConfigurationError: there is no such topic; NoFrontierError: only captured topics are
    asked for, and there is none.
    """
    from changelog.sink.lost_schemas import PUT_BACK
    from replay.broker.topics import list_topics
    from replay.cut.others import newest_of
    from replay.survey import survey

    steps.more(2)
    steps.begin("the frontier")
    record: FrontierRecord | None = None
    try:
        record = _frontier(settings)
    except NoFrontierError:
        if not names and not all_topics:
            raise
    steps.done()
    steps.begin("the topics that there are")
    captured = [] if record is None else sorted(record.frontier.tables)
    chosen = list_topics(settings.kafka) if all_topics else names or captured
    logs = settings.section(Logs)
    others = newest_of(settings.kafka, [log for log in logs.captured if log.topic in chosen])
    steps.done()
    surveys = survey(
        settings.kafka, chosen, record, declared=logs.declared, others=others, steps=steps
    )
    present = {topic.state.topic for topic in surveys}
    gone = [topic for topic in captured if topic in chosen and topic not in present]
    missing = [topic for topic in chosen if topic not in present and topic not in gone]
    if missing:
        raise _unknown(settings.kafka, missing)
    steps.more(1)
    steps.begin("schemas")
    records = {**dict.fromkeys(chosen, record), **others}
    lost, schemas_unknown = _lost_schemas(settings, records)
    steps.done()
    return _TopicFacts(
        record=record,
        surveys=[
            topic.undecodable(PUT_BACK) if topic.state.topic in lost else topic for topic in surveys
        ],
        gone=gone,
        schemas_unknown=schemas_unknown,
        is_registry_away=bool(schemas_unknown and settings.registry.url),
    )


def _lost_schemas(
    settings: Project, records: Mapping[str, FrontierRecord | None]
) -> tuple[list[str], str]:
    """Return the captured topics whose schemas the registry lacks, and why that is not known."""
    frontiers = {id(record): record.frontier for record in records.values() if record is not None}
    topics = {
        topic: number
        for frontier in frontiers.values()
        for topic, number in frontier.registered.items()
        if (record := records.get(topic)) is not None and record.frontier is frontier
    }
    if topics and not settings.registry.url:
        return [], "no schema registry is set"
    from changelog.sink.lost_schemas import lost_schemas

    try:
        return lost_schemas(settings.registry, topics), ""
    except LogError as error:
        return [], str(error.args[0])


def _frontier(settings: Project) -> FrontierRecord:
    from replay.broker.topics import read_frontier

    return read_frontier(settings.kafka, frontier_topic(settings.topic_prefix), settings.slot)


def _change(settings: Project, names: list[str], changes: _Changes, *, as_json: bool) -> None:
    if changes.create and changes.delete:
        raise ConfigurationError("--create and --delete contradict each other", hint="give one")
    if not names:
        raise ConfigurationError("no topic is named", hint="changelog topics --create TOPIC…")
    if changes.create:
        _create(settings, names, unkeyed=changes.unkeyed, as_json=as_json)
    else:
        _delete(settings, names, yes=changes.yes, as_json=as_json)


def _create(settings: Project, names: list[str], *, unkeyed: bool, as_json: bool) -> None:
    from changelog.runtime.progress.bar import StepBar
    from changelog.sink.by_hand import create_topics

    with StepBar(bar_console(as_json=as_json), "making") as steps:
        result = create_topics(
            settings.kafka, names, settings.capture, unkeyed=unkeyed, steps=steps
        )
    if as_json:
        print_json(result._asdict())
        return
    for name, count in sorted(result.partitions.items()):
        done = "is made" if name in result.made else "is there already"
        more = ", its settings are altered" if name in result.altered else ""
        tell(f"{name}: {done}, with {count} partitions{more}")


def _delete(settings: Project, names: list[str], *, yes: bool, as_json: bool) -> None:
    from changelog.runtime.progress.bar import StepBar
    from changelog.sink.by_hand import delete_topics
    from replay.broker.topics import inspect

    shown = bar_console(as_json=as_json)
    tables: Mapping[str, TableName] = {}
    with StepBar(shown, "looking for", 2) as steps:
        steps.begin("the topics")
        missing = sorted(set(names) - inspect(settings.kafka, names).keys())
        if missing:
            raise _unknown(settings.kafka, missing)
        steps.done()
        steps.begin("what is captured there")
        with suppress(NoFrontierError):
            tables = _frontier(settings).frontier.tables
        steps.done()
    lines = [f"{n} (table {tables[n]} is captured there)" if n in tables else n for n in names]
    question = f"Delete {', '.join(lines)} with all records?"
    if not yes and not (sys.stdin.isatty() and typer.confirm(question, err=True)):
        raise ConfigurationError("not deleted", hint="--yes does not ask")
    with StepBar(shown, "deleting") as steps:
        delete_topics(settings.kafka, names, steps)
    if as_json:
        print_json({"deleted": names})
    else:
        tell(f"deleted: {', '.join(names)}; what a registry has of their schemas is still there")


@with_examples(
    "`changelog spark-server` here, and then `rebuild-view --all --master sc://127.0.0.1:15002`",
    "`changelog spark-server --show` what to say to spark-submit on a cluster",
)
def spark_server(
    project: ProjectOption = Path(),
    master: Annotated[
        str | None,
        typer.Option(
            "--master", help="Spark's master URL that it runs on; the project's when left out."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option("--host", help="Address to listen at; who has the token may run any code."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port to listen at.")
    ] = CONNECT_PORT,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print the words for spark-submit elsewhere; start nothing."),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Run a Spark Connect server until a signal ends it, for `rebuild-view --master sc://…`.

    Takes the project's settings of Spark, as a session of a rebuild's own does. Asks for a token:
    that of SPARK_CONNECT_AUTHENTICATE_TOKEN, or one that it makes and keeps in a file for its user.
    """
    check_extra("spark", "changelog spark-server")
    from replay.spark.connect_server import serve, shown, with_server
    from replay.spark.session import SessionSettings, is_remote

    settings = load_project(project, needs=[])
    spark = settings.section(Spark)
    own = "local[*]" if is_remote(spark.master) else spark.master
    server_settings = with_server(
        SessionSettings(
            master=master or own,
            app_name="spark-server",
            warehouse=warehouse_of(settings),
            extra=spark.settings,
        ),
        host=host,
        port=port,
    )
    if is_remote(server_settings.master):
        raise ConfigurationError("a Spark Connect server cannot run on another one")
    if show:
        typer.echo(shown(server_settings))
        return
    serve(
        server_settings,
        host=host,
        port=port,
        ready=lambda token: _say_served(f"sc://{host}:{port}", token),
        stop=stop_on_signals(),
    )


def _say_served(url: str, token: Path | None) -> None:
    tell(f"Spark Connect server at {url}")
    if token is not None:
        tell(f"its token is in {token}, where rebuild-view finds it")


def _unknown(kafka: KafkaConnection, missing: list[str]) -> ConfigurationError:
    from replay.broker.topics import list_topics

    names = list_topics(kafka)
    near = get_close_matches(missing[0], names, n=3)
    return ConfigurationError(
        f'there is no topic "{missing[0]}"',
        hint=f"near it: {', '.join(near)}" if near else f"the cluster has {len(names)} topics",
    )
