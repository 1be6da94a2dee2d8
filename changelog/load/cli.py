"""The command `changelog load`: loads topics into a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from changelog.config import resolved
from changelog.contract.base.errors import ConfigurationError
from changelog.lines.as_kcat import SettingsOption
from changelog.lines.cli import project_of
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, stop_on_signals, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.options import TOLD, DebugOption, JsonOption, ProjectOption
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.setting import Given
from changelog.sections import Kafka, Registry

if TYPE_CHECKING:
    from changelog.load.load import LoadResult, LoadSettings
    from changelog.load.prepare import RowOptions

_FORMS = "auto, avro, json, csv or text"
_INTERRUPTED = 130
_DEAD_LETTER = "dead-letter:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The options of `changelog load`."""

    subjects: ClassVar[Mapping[str, str]] = {
        "into": "The table",
        "mode": "Records and rows",
        "start": "Start and end",
        "jobs": "Speed",
        "as_json": TOLD,
    }
    into: Annotated[
        str,
        typer.Option(
            "--into", help="postgres:DSN/TABLE, or a connection string of PostgreSQL and --table."
        ),
    ]
    table: Annotated[str, typer.Option("--table", help="The table, as table or schema.table.")] = ""
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the table if it is missing, with the columns of the schema."
        ),
    ] = False
    types: Annotated[
        str,
        typer.Option(
            "--types", help="Column types for --create, such as id=bigint,price=numeric(10,2)."
        ),
    ] = ""
    mode: Annotated[
        str, typer.Option("--mode", help="insert appends rows, upsert replaces them by key.")
    ] = "insert"
    key: Annotated[
        str, typer.Option("--key", help="Columns of the key, a,b; by default the primary key.")
    ] = ""
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            help="Source of each column: a=value.x,b=key.id,c=timestamp; also header.NAME, topic, "
            "partition, offset. By default the fields of the same names.",
        ),
    ] = ""
    value_form: Annotated[
        str,
        typer.Option(
            "--value-as",
            help=f"Form of values: {_FORMS}. auto is Avro if a schema id comes first, else JSON.",
        ),
    ] = "auto"
    key_form: Annotated[
        str, typer.Option("--key-as", help="Form of keys: auto, avro, json or text.")
    ] = "auto"
    fields: Annotated[
        str,
        typer.Option(
            "--fields", help="Names of the fields of CSV; by default the table's columns."
        ),
    ] = ""
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help="Character between the fields of CSV.")
    ] = ","
    tombstones: Annotated[
        str,
        typer.Option(
            "--tombstones", help="delete (needs --mode upsert, and is its default) or ignore."
        ),
    ] = ""
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            help="fail, or dead-letter:TOPIC to send records there that cannot be written.",
        ),
    ] = "fail"
    start: Annotated[
        str,
        typer.Option(
            "-o",
            "--from",
            help="stored (the offset in the table's database, at first the beginning), beginning, "
            "end, an offset, -N or @TIME.",
        ),
    ] = "stored"
    until: Annotated[
        str,
        typer.Option("--until", help="now (the topics' ends when it starts), an offset or @TIME."),
    ] = "now"
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new records until stopped.")
    ] = False
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name under which the offsets are stored; by default of the table."
        ),
    ] = ""
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, help="Partitions loaded at once; by default the number of cores."
        ),
    ] = None
    batch: Annotated[int, typer.Option("--batch", min=1, help="Most records of a transaction.")] = (
        200_000
    )
    client: SettingsOption = None
    as_json: JsonOption = False
    debug: DebugOption = False


@with_examples(
    "`changelog load orders --into postgresql://me@db/warehouse --table public.orders --create "
    "--mode upsert` creates the table and loads up to now; the next call continues there",
    "`changelog load orders --into postgresql://me@db/warehouse --table public.orders --mode "
    "upsert --follow` continues with new records",
    "`changelog load lines --into postgresql://me@db/warehouse --table lines --value-as csv "
    "--delimiter ';' --fields id,name --columns id,name`",
)
@takes(Chosen(Kafka), Chosen(Registry))
def load(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to load.")],
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    options: _Load,
) -> None:
    """Load topics into a table of PostgreSQL by COPY, and store the offsets with the rows.

    Ends with 0 when it has loaded what was on the topics at its start. The offsets move in the
    transactions of the rows: whatever ends the command, the next start loses and repeats nothing. A
    record that cannot be written ends it with 1 and a message that names it.
    """
    from changelog.load.load import Load, check_topics
    from changelog.load.prepare import parse_into, prepare
    from changelog.sink.registry import Schemas

    collect_rarely()
    settings = project_of(project, overrides, options.client)
    url, table = parse_into(resolved(options.into, settings.root, named_by="--into"), options.table)
    row_options = _row_options(topics, table, options)
    load_settings = _settings(topics, url, table, options)
    check_topics(settings.kafka, load_settings)
    with closing(Schemas(settings.registry)) as schemas:
        rules, latest = prepare(row_options, url, load_settings.name, schemas.latest)
        loading = Load(
            settings.kafka,
            load_settings,
            rules,
            schema=schemas.schema,
            latest=latest,
            console=bar_console(as_json=options.as_json),
        )
        result = loading.run(stop_on_signals())
    _tell(result, load_settings, as_json=options.as_json)
    if not result.is_done and load_settings.until is not None:
        raise typer.Exit(_INTERRUPTED)


def _tell(result: LoadResult, load_settings: LoadSettings, *, as_json: bool) -> None:
    if as_json:
        print_json({"table": load_settings.table, "load": load_settings.name, **result.to_json()})
        return
    refused = f", {result.refused} sent to the dead letters" if result.refused else ""
    tell(f"{result.records} records to {result.rows} rows in {result.seconds:.1f} s{refused}")


def _row_options(topics: list[str], table: str, options: _Load) -> RowOptions:
    from changelog.load.prepare import RowOptions

    if options.mode not in {"insert", "upsert"}:
        raise ConfigurationError(
            f'--mode "{options.mode}" is unknown', hint="give insert or upsert"
        )
    return RowOptions(
        topics=topics,
        table=table,
        columns=options.columns,
        key=options.key,
        upsert=options.mode == "upsert",
        tombstones=options.tombstones,
        value_form=options.value_form,
        key_form=options.key_form,
        fields=options.fields,
        delimiter=options.delimiter,
        create=options.create,
        types=options.types,
    )


def _settings(topics: list[str], url: str, table: str, options: _Load) -> LoadSettings:
    import os

    from changelog.lines.place import parse_start, parse_until
    from changelog.load.job import Batches
    from changelog.load.load import LoadSettings

    if options.follow and options.until != "now":
        raise ConfigurationError(
            "--follow and --until contradict each other", hint="give only one of them"
        )
    dead_letters = options.on_error.removeprefix(_DEAD_LETTER)
    if options.on_error != "fail" and (dead_letters == options.on_error or not dead_letters):
        raise ConfigurationError(
            f'--on-error "{options.on_error}" is unknown', hint=f"give fail or {_DEAD_LETTER}TOPIC"
        )
    if options.on_error != "fail" and dead_letters in topics:
        raise ConfigurationError(
            f'topic "{dead_letters}" is loaded itself: its dead letters would be loaded again',
            hint=f"--on-error {_DEAD_LETTER}TOPIC needs a topic that is not loaded",
        )
    return LoadSettings(
        url=url,
        table=table,
        name=options.name or f"load {table}",
        topics=tuple(dict.fromkeys(topics)),
        start=parse_start(options.start),
        until=None
        if options.follow
        else parse_until("end" if options.until == "now" else options.until),
        jobs=options.jobs or os.cpu_count() or 1,
        batches=Batches(records=options.batch),
        dead_letters="" if options.on_error == "fail" else dead_letters,
    )
