"""The commands `changelog read` and `changelog write`: any topic as lines, and back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, ClassVar

import typer

from changelog.config import BROKERS, Project, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.properties import parse_properties
from changelog.lines.as_kcat import (
    READ_OTHERS,
    WRITE_OTHERS,
    ReadLetters,
    SettingsOption,
    WriteLetters,
    settings_of,
)
from changelog.lines.client import check_reader, check_writer, parse_header
from changelog.lines.words import ReadWords
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, stop_on_signals
from changelog.runtime.examples import with_examples
from changelog.runtime.options import DebugOption, ProjectOption
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.setting import Given
from changelog.runtime.translated import translating
from changelog.sections import Kafka, Registry

if TYPE_CHECKING:
    from changelog.lines.forms.parse import Parse

_INTERRUPTED = 130


@translating(READ_OTHERS)
@with_examples(
    "`changelog read orders --until end` all that is there now",
    "`changelog read orders --from -5 --exit --json` the last five of each partition",
    r"`changelog read orders --from @2026-01-31T12:00:00Z --format '{op} {lsn} {key}\t{value}'` "
    "from a time on",
    r"`changelog read -t orders -o -5 -e -f '%o %k %s\n'` as kcat writes it",
)
@takes(Chosen(Kafka), Chosen(Registry))
def read(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Any topic of the cluster.")
    ] = None,
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    words: ReadWords,
    letters: ReadLetters,
) -> None:
    """Show the records of a topic as lines, and follow it until stopped.

    Avro is decoded by the registry's schemas; headers of our log are shown as LSN, letter and
    time. A record that cannot be shown ends with 1 behind the lines before it; a closed pipe, as of
    `| head`, ends with 0. Letters are kcat's, and mean what they mean there.
    """
    from changelog.avro.framed import FramedReader
    from changelog.lines.ask import Leaders
    from changelog.lines.read_options import lines_of, wanted_of
    from changelog.lines.reading import LinesRead
    from changelog.runtime.terminal import ClosedError, FileOutput
    from changelog.sink.registry import Schemas

    collect_rarely()
    _hush(letters)
    options = settings_of(words.client, letters)
    if letters.lists or letters.asks:
        check_reader(options)
        _tell(_project(project, overrides, options), names, letters)
        return
    (topic,) = _named(names, letters.named, most=1)
    request = wanted_of(topic, words, letters, options)
    check_reader(options)
    settings = _project(project, overrides, options)
    more = "; or `--as hex` shows their bytes"
    with closing(Schemas(settings.registry, more=more)) as schemas:
        leaders = Leaders(settings.kafka)
        lines = lines_of(topic, words, letters, FramedReader(schemas.schema), leaders.of)
        reading = LinesRead(settings.kafka, request, lines, FileOutput())
        try:
            reached = reading.run(stop_on_signals())
        except ClosedError:
            return
    if not reached:
        raise typer.Exit(_INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """Options of `changelog write`: how lines are read, and where they go."""

    subjects: ClassVar[Mapping[str, str]] = {
        "separator": "How a line is read",
        "header": "Where it goes",
    }
    separator: Annotated[
        str | None,
        typer.Option("-K", "--separator", help=r"What stands between key and value: \t."),
    ] = None
    no_key: Annotated[
        bool, typer.Option("--no-key", help="A line is a value; records have no keys.")
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines are objects with key, value, headers.")
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
        typer.Option(
            "-H",
            "--header",
            help="Header of each record, name=value, or name for a null; repeatable.",
        ),
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("-p", "--partition", min=-1, help="This one, and not where keys belong."),
    ] = None
    whole: Annotated[
        bool, typer.Option("--transaction", help="All of the input, or nothing of it.")
    ] = False
    client: SettingsOption = None
    debug: DebugOption = False


@translating(WRITE_OTHERS)
@with_examples(
    "`changelog write prices --separator = < prices.txt` lines such as `apple=3`",
    "`changelog read orders --until end --json | changelog write copy --json --transaction` all "
    "of it, or nothing",
    "`changelog write prices --separator = --null ''` where `apple=` deletes a key",
    "`changelog write -t prices -K= -Z < prices.txt` as kcat reads it",
)
@takes(Chosen(Kafka))
def write(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC FILE…", help="The topic, and files in place of the input."),
    ] = None,
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    words: _Write,
    letters: WriteLetters,
) -> None:
    """Write the lines of standard input to a topic: key, tab, value.

    Ends with 0 once all replicas have acknowledged each record. A line that is no record ends with
    1; those before it are written, with --transaction nothing is. Letters are kcat's.
    """
    from changelog.lines.forms.template import unescaped
    from changelog.lines.writing import (
        WriteTarget,
        Writing,
        WritingStoppedError,
        split,
        whole_files,
    )

    collect_rarely()
    _hush(letters)
    topic, *files = _named(names, [letters.named] if letters.named else None)
    options = settings_of(words.client, letters, compression_type=letters.compression)
    own = options.pop("transactional.id", "")
    check_writer(options)
    if letters.line_file and len(files) != 1:
        raise ConfigurationError("-l takes the lines of one FILE", hint="name it behind the topic")
    settings = _project(project, overrides, options)
    target = WriteTarget(
        topic=topic,
        partition=None if words.partition == -1 else words.partition,
        whole=words.whole or bool(own),
        transactional_id=own,
        most=letters.count,
        skips_empty=letters.is_kcat,
    )
    by_file = bool(files) and not letters.line_file
    parse, stop = _parser(words, letters, by_file=by_file), stop_on_signals()
    delimiter = unescaped(words.delimiter, "--delimiter")
    with ExitStack() as opened:
        source = opened.enter_context(_opened(files[0])).fileno() if letters.line_file else 0
        lines = whole_files(files) if by_file else split(delimiter, stop, source)
        progress = opened.enter_context(_progress(topic, source, hidden=letters.quiet or by_file))
        try:
            Writing(settings.kafka, target, parse, progress).run(lines, stop)
        except WritingStoppedError:
            raise typer.Exit(_INTERRUPTED) from None


def _opened(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error


def _named(names: list[str] | None, named: list[str] | None, most: int | None = None) -> list[str]:
    """Return the topic, by `-t` or as the first word, and the words that follow."""
    words = [*(named or ()), *(names or ())]
    if not words:
        raise ConfigurationError("which topic?", hint="TOPIC, or -t TOPIC")
    if (named and len(named) > 1) or (most is not None and len(words) > most):
        raise ConfigurationError(
            f"one topic, and not {len(words)}", hint="a command for each of them"
        )
    return words


def _hush(letters: ReadLetters | WriteLetters) -> None:
    if letters.quiet:
        logging.getLogger("changelog").setLevel(logging.ERROR)


def _tell(settings: Project, names: list[str] | None, letters: ReadLetters) -> None:
    """Print what a cluster has: `-L`, or `-Q`."""
    from changelog.lines.listing import metadata_text, offsets_text, parse_moment

    if letters.lists and letters.asks:
        raise ConfigurationError("-L and -Q are two questions", hint="one at a time")
    named = [*(letters.named or ()), *(names or ())]
    if letters.asks:
        if not named:
            raise ConfigurationError("-Q takes -t TOPIC:PARTITION:MS, once for each")
        places = [parse_moment(text) for text in named]
        print(offsets_text(settings.kafka, places, as_json=letters.envelope))
        return
    (topic,) = _named(names, letters.named, most=1) if named else [None]
    print(metadata_text(settings.kafka, topic, as_json=letters.envelope))


@contextmanager
def _progress(topic: str, source: int, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    """Yield the function that counts the lines taken; a terminal that is typed into gets no bar."""
    if hidden or os.isatty(source):
        yield lambda _: None
        return
    from changelog.lines.writing import part_read
    from changelog.runtime.progress.bar import RowBar

    with ExitStack() as shown:
        bar, taken = None, 0

        def count(lines: int) -> None:
            nonlocal bar, taken
            if bar is None:
                bar = shown.enter_context(RowBar(bar_console(), topic, says_sum=False))
            taken += lines
            if taken and (part := part_read(source)):
                bar.expect(round(taken / part))
            bar.add(lines)

        yield count


def _parser(words: _Write, letters: WriteLetters, *, by_file: bool) -> Parse:
    from changelog.lines.forms.parse import LineFormat, bytes_of, json_parser, line_parser
    from changelog.lines.forms.shown import parse_form
    from changelog.lines.forms.template import unescaped

    separator = unescaped(r"\t" if words.separator is None else words.separator, "--separator")
    if not separator or not words.delimiter:
        raise ConfigurationError("separator and delimiter have a character at least")
    if letters.empties and words.null:
        raise ConfigurationError("-Z and --null contradict each other", hint="give one")
    null = "" if letters.empties else words.null
    alone = words.separator is None and (letters.is_kcat or letters.fixed is not None)
    how = LineFormat(
        separator=separator,
        keyed=not (words.no_key or by_file or alone),
        null=None if null is None else unescaped(null, "--null"),
        key=bytes_of(parse_form(words.key_form or words.form)),
        value=bytes_of(parse_form(words.value_form or words.form)),
        headers=tuple(parse_header(text) for text in words.header or ()),
        fixed=None if letters.fixed is None else letters.fixed.encode(),
        lenient=letters.is_kcat or letters.fixed is not None,
    )
    return json_parser(how) if words.as_json else line_parser(how)


def _project(project: Path, options_given: Given, options: Mapping[str, str]) -> Project:
    """Return the settings of a command that needs the brokers alone."""
    overrides = {**options_given, "kafka.options": dict(options) or None}
    return load_project(project, overrides=overrides, needs=[BROKERS], one_source=False)


def project_of(project: Path, overrides: Given, client: list[str] | None) -> Project:
    """Return the settings of a command with `-X` that needs the brokers alone."""
    return _project(project, overrides, parse_properties(client, "-X") or {})
