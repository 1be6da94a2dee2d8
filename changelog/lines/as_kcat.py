"""The letters of kcat that `changelog read` and `changelog write` take, each with its meaning.

Words are ours, letters are kcat's: `--format` takes `{key}`, `-f` takes `%k`. A letter that is not
taken is refused with what to write instead; none means another thing than in kcat.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from changelog.contract.base.errors import ConfigurationError
from changelog.lines.client import given_settings
from changelog.lines.place import End, FirstRecord, Since, Start, Stored, Until, parse_start
from changelog.lines.place import parse_until as _parse_until
from changelog.runtime.options import VersionOption
from changelog.sections import SERVERS

_READS = "`changelog read` reads: the same letters there"
_WRITES = "`changelog write` writes: the same letters there"
_ALONE = "leave it out"
_COMMON = {
    "-E": f"{_ALONE}: brokers that go away are waited for; a record that cannot be shown or written"
    " ends the command and is named, and none is left out",
    "-m": f"{_ALONE}: brokers have 15 seconds to answer; -X socket.timeout.ms=MS is the client's",
    "-v": "--debug, or -d CONTEXTS for the client's own log",
    "-M": "`changelog stack up` runs a broker",
}
READ_OTHERS: Mapping[str, str] = {
    **_COMMON,
    **dict.fromkeys(("-P", "-k", "-z", "-l", "-H"), _WRITES),
    "-T": f"{_ALONE}: lines are on standard output anyway",
    "-O": "-f '%o:%k:%s\\n'; kcat 1.7.1 itself prints no offset for -O",
}
"""Replacements of kcat's letters that `changelog read` does not take, for its refusals."""

WRITE_OTHERS: Mapping[str, str] = {
    **_COMMON,
    **dict.fromkeys(("-C", "-G", "-L", "-Q", "-s", "-o", "-O", "-f"), _READS),
    "-J": "--json takes objects as `changelog read --json` writes them; kcat's -J is for reading",
    "-r": f"{_ALONE}: nothing is written as Avro; --as base64 copies its bytes",
    "-T": "`… | tee FILE | changelog write TOPIC`; kcat's -T puts the messages on standard output, "
    "one behind the other without a delimiter",
}
"""Replacements of kcat's letters that `changelog write` does not take, for its refusals."""


def _list_properties(properties: list[str] | None) -> list[str] | None:
    if properties and {"list", "help"} & {*properties}:
        from changelog.native.properties import client_properties  # noqa: PLC0415 - loads it

        print(client_properties(), end="")
        raise typer.Exit
    return properties


SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        "--client",
        callback=_list_properties,
        is_eager=True,
        help="Setting of the client, prop=value; repeatable. `list` prints them all.",
        rich_help_panel=SERVERS,
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option("-F", help="File with such settings, prop=value a line.", rich_help_panel=SERVERS),
]
DebugContexts = Annotated[
    str | None,
    typer.Option(
        "-d", help="What the client logs of itself: broker,topic,…; all.", rich_help_panel=SERVERS
    ),
]
CountOption = Annotated[
    int | None, typer.Option("-c", "--count", min=1, help="End after so many records.")
]
QuietOption = Annotated[bool, typer.Option("-q", help="Say nothing but errors.")]
NothingOption = Annotated[bool, typer.Option("-u", help="Nothing: nothing is kept back as it is.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLetters:
    """Options of `changelog read` by kcat's letters."""

    subjects: ClassVar[Mapping[str, str]] = {"named": "As kcat"}
    named: Annotated[
        list[str] | None,
        typer.Option(
            "-t", help="Topic; lines are then kcat's: the value alone. With -Q TOPIC:PARTITION:MS."
        ),
    ] = None
    consumes: Annotated[bool, typer.Option("-C", help="Nothing, but that lines are kcat's.")] = (
        False
    )
    balanced: Annotated[
        str,
        typer.Option(
            "-G",
            help="Consumer group; it begins at the end where it has no place, or at -o always.",
        ),
    ] = ""
    lists: Annotated[bool, typer.Option("-L", help="List brokers, topics and partitions.")] = False
    asks: Annotated[bool, typer.Option("-Q", help="Print the first offset since a time.")] = False
    tokens: Annotated[
        str | None,
        typer.Option(
            "-f", help=r"Template: %s %S %R %k %K %T %h %t %p %o %%; \n, \t, \xFF. No line's end."
        ),
    ] = None
    envelope: Annotated[
        bool, typer.Option("-J", help="kcat's object of JSON a line, with key and payload.")
    ] = False
    between: Annotated[
        str | None, typer.Option("-K", help="The key before the value, and this between them.")
    ] = None
    says_null: Annotated[bool, typer.Option("-Z", help="NULL for null, else nothing.")] = False
    packed: Annotated[
        list[str] | None,
        typer.Option("-s", help="avro, or numbers: 'i$', 'hB s'; key=… and value=… for one alone."),
    ] = None
    quiet: QuietOption = False
    unbuffered: NothingOption = False
    file: FileOption = None
    contexts: DebugContexts = None
    version: VersionOption = False

    @property
    def is_kcat(self) -> bool:
        """Tell whether lines are kcat's."""
        return bool(
            self.named or self.consumes or self.balanced or self.envelope or self.packed
        ) or not (self.tokens is None and self.between is None)

    def format(self) -> str:
        """Return the template of a line, without the delimiter of `-D`."""
        if self.tokens is not None:
            return self.tokens
        between = self.between
        if between is None and self.packed_as("key") == "avro":
            between = ""  # kcat shows a key that it decodes
        return "%s" if between is None else f"%k{between.replace('%', '%%')}%s"

    def packed_as(self, which: str) -> str | None:
        """Return the format of `-s` for keys or for values, or None if it names none."""
        form = None
        for setting in self.packed or ():
            part, equals, form_named = setting.partition("=")
            if not equals or part not in {"key", "value"}:
                form = setting
            elif part == which:
                form = form_named
        return form


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLetters:
    """Options of `changelog write` by kcat's letters."""

    subjects: ClassVar[Mapping[str, str]] = {"named": "As kcat"}
    named: Annotated[
        str | None,
        typer.Option("-t", help="Topic; a line is then a value, but for -K, as in kcat."),
    ] = None
    produces: Annotated[bool, typer.Option("-P", help="Nothing, but that lines are kcat's.")] = (
        False
    )
    fixed: Annotated[str | None, typer.Option("-k", help="The key of lines without one.")] = None
    empties: Annotated[bool, typer.Option("-Z", help="Empty is null: --null ''.")] = False
    compression: Annotated[
        str | None, typer.Option("-z", help="none, gzip, snappy, lz4 (the default) or zstd.")
    ] = None
    line_file: Annotated[
        bool, typer.Option("-l", help="Lines of FILE; without it each FILE is one value.")
    ] = False
    count: CountOption = None
    ends: Annotated[
        bool, typer.Option("-e", help="Nothing: the command ends where its input ends.")
    ] = False
    quiet: QuietOption = False
    unbuffered: NothingOption = False
    file: FileOption = None
    contexts: DebugContexts = None
    version: VersionOption = False

    @property
    def is_kcat(self) -> bool:
        """Tell whether lines are read by kcat's rules."""
        return bool(self.named or self.produces)


def settings_of(
    client: list[str] | None, letters: ReadLetters | WriteLetters, **more: str | None
) -> dict[str, str]:
    """Return the client's settings of all letters that give some.

    Raises ConfigurationError: one has no form of theirs.
    """
    properties = {
        "debug": letters.contexts,
        **{name.replace("_", "."): v for name, v in more.items()},
    }
    return {
        **given_settings(client, letters.file),
        **{name: value for name, value in properties.items() if value is not None},
    }


def parse_places(texts: Sequence[str], *, at_end: bool) -> tuple[Start | None, Until | None]:
    """Return the start and the end of a read by `-o`, given once or as `s@` and `e@`.

    With `at_end` it ends at the present end, unless that is later.

    Raises ConfigurationError: one is no place, or a place is given twice.
    """
    ends = [_parse_until(text[1:]) for text in texts if text.startswith("e@")]
    starts = [
        parse_start(text.removeprefix("s") if text.startswith("s@") else text)
        for text in texts
        if not text.startswith("e@")
    ]
    if len(starts) > 1 or len(ends) > 1:
        raise ConfigurationError("a read has one beginning and one end", hint="give one of each")
    until: Until | None = ends[0] if ends else None
    if at_end and not (isinstance(until, Since) and until.ms <= time.time() * 1000):
        until = End()
    return (starts[0] if starts else None), until


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """The start of a read, and its consumer group."""

    start: Start  # where, in partitions of which the group has no place
    group: str = ""  # its name; empty for none
    alone: bool = False  # whether no partition is left to other members
    anew: bool = False  # whether a place that it has counts for nothing


_RESETS: Mapping[str, Start] = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), FirstRecord()),
    **dict.fromkeys(("latest", "largest", "end"), End()),
}


def beginnings(
    start: Start | None, group: str, letters: ReadLetters, settings: dict[str, str]
) -> Beginnings:
    """Return the start of a read and its group: one of `--group`, one of kcat's, or none.

    With `-G`, `auto.offset.reset` is taken out of the client's settings.

    Raises ConfigurationError: two groups are named, or what begins a group is none of the words.
    """
    named = settings.get("group.id", "")
    groups = {group_named for group_named in (group, letters.balanced, named) if group_named}
    if len(groups) > 1:
        raise ConfigurationError(
            f"{len(groups)} groups are named: {', '.join(sorted(groups))}",
            hint="--group, -G or -X group.id: one of them",
        )
    if group:
        return Beginnings(start=start or Stored(), group=group)
    if letters.balanced:
        reset = settings.pop("auto.offset.reset", "latest")
        if reset not in _RESETS:
            raise ConfigurationError(
                f"-X auto.offset.reset={reset} begins nowhere", hint="earliest or latest"
            )
        anew = start not in {None, Stored()}
        begin = start if start is not None and anew else _RESETS[reset]
        return Beginnings(start=begin, group=letters.balanced, anew=anew)
    if named and start == Stored():  # kcat looks at its place and moves it, and shares nothing
        return Beginnings(start=End(), group=named, alone=True)
    return Beginnings(start=start or FirstRecord())
