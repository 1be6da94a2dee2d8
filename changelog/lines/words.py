"""The words of `changelog read`: our own options, as opposed to the letters of kcat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from changelog.lines.as_kcat import CountOption, SettingsOption
from changelog.runtime.options import DebugOption

_FORMS = "auto, text, json, avro, hex or base64"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadWords:
    """Options of `changelog read` by words of ours."""

    subjects: ClassVar[Mapping[str, str]] = {
        "start": "What is read",
        "template": "What a line looks like",
    }
    start: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--from",
            help="beginning (the default), end, an offset, -N (N offsets before the end), @TIME "
            "(ISO 8601 or milliseconds), or stored (the default with --group). As in kcat s@MS, "
            "and e@MS to end there.",
        ),
    ] = None
    until: Annotated[
        str | None,
        typer.Option("--until", help="end, an offset or @TIME: end there; what is at it is left."),
    ] = None
    at_end: Annotated[
        bool, typer.Option("-e", "--exit", help="End at what is the end now: --until end.")
    ] = False
    count: CountOption = None
    partition: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", min=-1, help="Only this one; repeatable. -1 for all."),
    ] = None
    group: Annotated[
        str,
        typer.Option("--group", help="Consumer group: its place is stored behind what was shown."),
    ] = ""
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Records of open and aborted transactions too.")
    ] = False
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=r"Template of a line: {key}, {value}, {headers}, {header.NAME}, {topic}, "
            r"{partition}, {offset}, {timestamp}, {time}, {position}, {lsn}, {op}, {ts}, "
            r"{key_bytes}, {value_bytes}; \t and the like. {key}\t{value} by default.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="An object of JSON a line; a tombstone is null.")
    ] = False
    form: Annotated[
        str | None,
        typer.Option(
            "--as",
            help=f"Keys and values: {_FORMS}. auto, the default: Avro where it is, else text.",
        ),
    ] = None
    key_form: Annotated[str | None, typer.Option("--key-as", help="Keys alone.")] = None
    value_form: Annotated[str | None, typer.Option("--value-as", help="Values alone.")] = None
    null: Annotated[
        str | None, typer.Option("--null", help="What stands for null in a template: NULL.")
    ] = None
    delimiter: Annotated[
        str, typer.Option("-D", "--delimiter", help=r"What stands behind each record.")
    ] = r"\n"
    client: SettingsOption = None
    debug: DebugOption = False
