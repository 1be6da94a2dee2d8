"""The commands `changelog read` and `changelog write`: any topic as lines, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from changelog.config import BROKERS, Project, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.properties import parse_properties
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, stop_on_signals
from changelog.runtime.examples import with_examples
from changelog.runtime.options import DebugOption, ProjectOption
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.setting import Given
from changelog.sections import SERVERS, Kafka, Registry

if TYPE_CHECKING:
    from changelog.lines.forms.parse import Parse
    from changelog.lines.forms.render import Lines
    from changelog.lines.forms.shown import Framed
    from changelog.lines.reading import Wanted

_FORMS = "auto, text, json, avro, hex or base64"
_INTERRUPTED = 130

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Any topic of the cluster.")]
ClientOption = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--client",
        help="Setting of the client, prop=value; repeatable.",
        rich_help_panel=SERVERS,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What is read, and how it is shown."""

    subjects: ClassVar[Mapping[str, str]] = {
        "start": "What is read",
        "template": "What a line looks like",
    }
    start: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--from",
            help="beginning (the default), end, an offset, -N (before the end), @TIME (ISO 8601 or "
            "milliseconds), or stored (the default with --group).",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", help="end, an offset or @TIME: end there; what is at it is left."),
    ] = None
    at_end: Annotated[
        bool,
        typer.Option("-e", "--exit", help="End at what is the end now: --until end."),
    ] = False
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="End after so many records.")
    ] = None
    partition: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", min=0, help="Only this one; repeatable."),
    ] = None
    group: Annotated[
        str,
        typer.Option(
            "-G", "--group", help="Consumer group: its place is stored behind what was shown."
        ),
    ] = ""
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="Records of open and aborted transactions too."),
    ] = False
    template: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            help=r"Template of a line: {key}, {value}, {headers}, {header.NAME}, {topic}, "
            r"{partition}, {offset}, {timestamp}, {time}, {position}, {lsn}, {op}, {ts}, "
            r"{key_bytes}, {value_bytes}; \t and the like. {key}\t{value} by default.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("-J", "--json", help="An object of JSON a line; a tombstone is null.")
    ] = False
    form: Annotated[
        str,
        typer.Option("--as", help=f"Keys and values: {_FORMS}. auto: Avro where it is, else text."),
    ] = "auto"
    key_form: Annotated[str | None, typer.Option("--key-as", help="Keys alone.")] = None
    value_form: Annotated[str | None, typer.Option("--value-as", help="Values alone.")] = None
    null: Annotated[str, typer.Option("--null", help="What stands for null in a template.")] = (
        "NULL"
    )
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help=r"What stands behind each record.")
    ] = r"\n"
    client: ClientOption = None
    debug: DebugOption = False


@with_examples(
    "`changelog read orders --until end` all that is there now",
    "`changelog read orders --from -5 --exit --json` the last five of each partition",
    r"`changelog read orders --from @2026-01-31T12:00:00Z --format '{op} {lsn} {key}\t{value}'` "
    "from a time on",
)
@takes(Chosen(Kafka), Chosen(Registry))
def read(
    topic: TopicArgument, project: ProjectOption = Path(), *, given: Given, asked: _Read
) -> None:
    """Show the records of a topic as lines, and follow it until stopped.

    Avro is decoded by the registry's schemas; headers of our log are shown as LSN, letter and
    time. A record that cannot be shown ends with 1 behind the lines before it; a closed pipe, as of
    `| head`, ends with 0.
    """
    from changelog.lines.reading import Reading
    from changelog.runtime.terminal import ClosedError, Output

    collect_rarely()
    settings = project_of(project, given, asked.client)
    wanted = _wanted(topic, asked)
    with closing(_Schemas(settings)) as schemas:
        reading = Reading(settings.kafka, wanted, _lines(topic, asked, schemas.framed), Output())
        try:
            reached = reading.run(stop_on_signals())
        except ClosedError:
            return
    if not reached:
        raise typer.Exit(_INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """How lines are read, and where they go."""

    subjects: ClassVar[Mapping[str, str]] = {
        "separator": "How a line is read",
        "header": "Where it goes",
    }
    separator: Annotated[
        str, typer.Option("-K", "--separator", help=r"What stands between key and value.")
    ] = r"\t"
    no_key: Annotated[
        bool, typer.Option("--no-key", help="A line is a value; records have no keys.")
    ] = False
    as_json: Annotated[
        bool,
        typer.Option("-J", "--json", help="Lines are objects with key, value, headers."),
    ] = False
    form: Annotated[
        str, typer.Option("--as", help="Keys and values are text, json, hex or base64.")
    ] = "text"
    key_form: Annotated[str | None, typer.Option("--key-as", help="Keys alone.")] = None
    value_form: Annotated[str | None, typer.Option("--value-as", help="Values alone.")] = None
    null: Annotated[
        str | None,
        typer.Option("--null", help="This text is null: of a value a tombstone. '' for empty."),
    ] = None
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="What ends a line.")] = r"\n"
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", help="Header of each record, name=value; repeatable."),
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", min=0, help="This one, and not where keys belong."),
    ] = None
    whole: Annotated[
        bool, typer.Option("--transaction", help="All of the input, or nothing of it.")
    ] = False
    client: ClientOption = None
    debug: DebugOption = False


@with_examples(
    "`changelog write prices --separator = < prices.txt` lines such as `apple=3`",
    "`changelog read orders --until end --json | changelog write copy --json --transaction` all "
    "of it, or nothing",
    "`changelog write prices --separator = --null ''` where `apple=` deletes a key",
)
@takes(Chosen(Kafka))
def write(
    topic: TopicArgument, project: ProjectOption = Path(), *, given: Given, asked: _Write
) -> None:
    """Write the lines of standard input to a topic: key, tab, value.

    Ends with 0 once all replicas have acknowledged each record. A line that is no record ends with
    1; those before it are written, with --transaction nothing is.
    """
    from changelog.lines.forms.template import unescaped
    from changelog.lines.writing import StoppedError, Target, Writing, split

    collect_rarely()
    settings = project_of(project, given, asked.client)
    target = Target(topic=topic, partition=asked.partition, whole=asked.whole)
    parse, stop = _parser(asked), stop_on_signals()
    delimiter = unescaped(asked.delimiter, "--delimiter")
    with _progress(topic) as told:
        try:
            Writing(settings.kafka, target, parse, told).run(split(delimiter, stop), stop)
        except StoppedError:
            raise typer.Exit(_INTERRUPTED) from None


@contextmanager
def _progress(topic: str) -> Iterator[Callable[[int], None]]:
    """Give what shows how many lines are taken; nobody types beside a bar that moves."""
    if os.isatty(0):
        yield lambda _: None
        return
    from changelog.lines.writing import part_read
    from changelog.runtime.progress.bar import RowBar

    with ExitStack() as shown:
        bar, taken = None, 0

        def told(lines: int) -> None:
            nonlocal bar, taken
            if bar is None:
                bar = shown.enter_context(RowBar(bar_console(), topic, says_sum=False))
            taken += lines
            if taken and (part := part_read()):
                bar.expect(round(taken / part))
            bar.add(lines)

        yield told


def _parser(asked: _Write) -> Parse:
    from changelog.lines.forms.parse import Given as Lines
    from changelog.lines.forms.parse import bytes_of, json_parser, line_parser
    from changelog.lines.forms.shown import parse_form
    from changelog.lines.forms.template import unescaped

    headers = parse_properties(asked.header, "--header") or {}
    separator = unescaped(asked.separator, "--separator")
    if not separator or not asked.delimiter:
        raise ConfigurationError("separator and delimiter have a character at least")
    how = Lines(
        separator=separator,
        keyed=not asked.no_key,
        null=None if asked.null is None else unescaped(asked.null, "--null"),
        key=bytes_of(parse_form(asked.key_form or asked.form)),
        value=bytes_of(parse_form(asked.value_form or asked.form)),
        headers=tuple((name, text.encode()) for name, text in headers.items()),
    )
    return json_parser(how) if asked.as_json else line_parser(how)


def project_of(project: Path, given: Given, client: list[str] | None) -> Project:
    """Return the settings of a command that needs the brokers alone."""
    options = parse_properties(client, "-X")
    overrides = {**given, "kafka.options": options}
    return load_project(project, overrides=overrides, needs=[BROKERS], one_source=False)


def _wanted(topic: str, asked: _Read) -> Wanted:
    from changelog.lines.place import parse_start, parse_until
    from changelog.lines.reading import Wanted

    if asked.at_end and asked.until not in {None, "end"}:
        raise ConfigurationError("--exit and --until contradict each other", hint="give one")
    default = "stored" if asked.group else "beginning"
    start = parse_start(asked.start or default)
    until = "end" if asked.at_end else asked.until
    return Wanted(
        topic=topic,
        partitions=tuple(asked.partition or ()),
        start=start,
        until=None if until is None else parse_until(until),
        group=asked.group,
        committed=not asked.uncommitted,
        count=asked.count,
    )


def _lines(topic: str, asked: _Read, framed: Framed) -> Lines:
    from changelog.lines.forms.render import json_lines, template_lines
    from changelog.lines.forms.shown import parse_form, plain, token
    from changelog.lines.forms.template import DEFAULT, parse_template, unescaped

    key = parse_form(asked.key_form or asked.form)
    value = parse_form(asked.value_form or asked.form)
    delimiter = unescaped(asked.delimiter, "--delimiter")
    if asked.as_json:
        if asked.template is not None:
            raise ConfigurationError("--json and --format contradict each other", hint="give one")
        return json_lines(
            topic, key=token(key, framed), value=token(value, framed), delimiter=delimiter
        )
    return template_lines(
        parse_template(DEFAULT if asked.template is None else asked.template),
        key=plain(key, framed),
        value=plain(value, framed),
        null=unescaped(asked.null, "--null"),
        delimiter=delimiter,
    )


class _Schemas:
    """The registry's schemas, which are asked for at the first framed record."""

    def __init__(self, settings: Project) -> None:
        from changelog.sink.registry import Registry as Client

        self._connection = settings.registry
        self._client: Client | None = None
        self._framed: Framed | None = None

    def framed(self, raw: bytes) -> object:
        """Return what a framed record says."""
        if self._framed is None:
            self._framed = self._opened()
        return self._framed(raw)

    def _opened(self) -> Framed:
        from changelog.contract.forms.framed import FramedReader
        from changelog.sink.registry import Registry as Client

        if not self._connection.url:
            raise ConfigurationError(
                "records are framed as a schema registry's are, and no registry is set",
                hint="--schema-registry URL; or `--as hex` shows their bytes",
            )
        self._client = Client(self._connection)
        return FramedReader(self._client.schema)

    def close(self) -> None:
        """Close its connections."""
        if self._client is not None:
            self._client.close()
