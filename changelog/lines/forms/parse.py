"""Lines to records: `key<separator>value`, or an object of JSON. Pure.

A part of an object that is no text is taken as it is written: read and written again its numbers
would lose digits.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from changelog.avro.framed import one_line
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.base.headers import Headers
from changelog.lines.forms.headers import written
from changelog.lines.forms.shown import As

_BLANKS = re.compile(r"[ \t\n\r]*")
_TAKEN = {"key", "value", "headers"}
_TOLD = {"topic", "partition", "offset", "timestamp"}
"""Members that `changelog read --json` writes and that a new record has anew."""


class InputError(ChangelogError):
    """A line is no record."""


class ParsedRecord(NamedTuple):
    """A record as a line gives it; None is null."""

    key: bytes | None
    value: bytes | None
    headers: Headers


Parse = Callable[[bytes], ParsedRecord]  # returns what a line says; raises InputError

Raw = Callable[[bytes], bytes]
"""Returns the bytes that a text stands for; raises ValueError or ChangelogError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How lines are to be read."""

    separator: bytes = b"\t"  # what stands between key and value
    keyed: bool = True  # whether there are keys
    null: bytes | None = None  # the text that stands for null; None for no text
    key: Raw = bytes  # what the text of a key stands for
    value: Raw = bytes  # what the text of a value stands for
    headers: tuple[tuple[str, str | bytes | None], ...] = ()  # of each record, before its own
    fixed: bytes | None = None  # the key of lines that have none; None for no key
    lenient: bool = False  # whether a line without a separator is a value


def bytes_of(form: As) -> Raw:
    """Return the reader of a key's or value's text.

    Raises ConfigurationError: nothing is written in this form.
    """
    match form:
        case As.TEXT:
            return bytes
        case As.JSON:
            return one_line
        case As.HEX:
            return lambda text: bytes.fromhex(text.decode("ascii"))
        case As.BASE64:
            return lambda text: b64decode(text, validate=True)
        case As.AUTO | As.AVRO:
            raise ConfigurationError(
                f"keys and values cannot be written as {form.value}",
                hint="text, json, hex or base64",
            )


def line_parser(line_format: LineFormat) -> Parse:
    """Return the parser of `key<separator>value`, or of a value alone without keys."""
    separator, headers = line_format.separator, list(line_format.headers)

    def alone(line: bytes) -> ParsedRecord:
        return ParsedRecord(
            line_format.fixed, _raw(line_format.value, line, line_format.null, "value"), headers
        )

    def parse(line: bytes) -> ParsedRecord:
        if not line_format.keyed:
            return alone(line)
        key, separated, value = line.partition(separator)
        if not separated and line_format.lenient:
            return alone(line)
        if not separated:
            raise InputError(
                f"there is no separator {separator.decode(errors='replace')!r} between key and "
                "value",
                hint="--separator names another, --no-key takes the line for a value",
            )
        own = _raw(line_format.key, key, line_format.null, "key")
        return ParsedRecord(
            line_format.fixed if own is None else own,
            _raw(line_format.value, value, line_format.null, "value"),
            headers,
        )

    return parse


def _raw(read: Raw, text: bytes, null: bytes | None, part: str) -> bytes | None:
    if text == null:
        return None
    if read is bytes:
        return text
    try:
        return read(text)
    except (ValueError, ChangelogError) as error:
        raise InputError(f"the {part} is not in its form: {error}") from error


def json_parser(line_format: LineFormat) -> Parse:
    """Return the parser of objects with `key`, `value` and `headers`, as of `read --json`."""

    def parse(line: bytes) -> ParsedRecord:
        try:
            members = _members(line.decode())
        except ValueError as error:
            raise InputError(f"it is no object of JSON: {error}") from error
        unknown = sorted(members.keys() - _TAKEN - _TOLD)
        lacking = [
            n for n in ("key", "value") if n not in members and (line_format.keyed or n != "key")
        ]
        if unknown or lacking:
            difference = f'has no "{lacking[0]}"' if lacking else f'has "{unknown[0]}"'
            raise InputError(
                f"the object {difference}",
                hint='it takes "key", "value" and "headers"; a null is written out, and --no-key '
                "does without keys",
            )
        return ParsedRecord(
            _member(line_format.key, members.get("key"), line_format.null, "key"),
            _member(line_format.value, members["value"], line_format.null, "value"),
            [*line_format.headers, *_headers(members.get("headers"))],
        )

    return parse


def _member(
    read: Raw, member: tuple[Any, str] | None, null: bytes | None, part: str
) -> bytes | None:
    decoded, text = member or (None, "")
    if decoded is None:
        return None
    try:
        raw = (decoded if isinstance(decoded, str) else text).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the {part} cannot be written in UTF-8: {error.reason}") from error
    return _raw(read, raw, null, part)


def _headers(member: tuple[Any, str] | None) -> Headers:
    headers = {} if member is None else member[0]
    try:
        return written(headers) if isinstance(headers, Mapping) else written({"": headers})
    except (ValueError, TypeError) as error:
        raise InputError(f"the headers cannot be used: {error}") from error


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """Return each member of an object with the text as which it is written.

    Raises ValueError: it is no object, or one with a member twice.
    """
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    members: dict[str, tuple[Any, str]] = {}
    place = _after(text, 0, "{")
    if text[place : place + 1] == "}":
        return _ended(text, place + 1, members)
    while True:
        name, place = scanstring(text, _after(text, place, '"'))
        place = _after(text, place, ":")
        value, end = decoder.raw_decode(text, place)
        if name in members:
            raise ValueError(f'"{name}" is there twice')
        members[name] = value, text[place:end]
        place = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
        if text[place : place + 1] == "}":
            return _ended(text, place + 1, members)
        place = _after(text, place, ",")


def _after(text: str, place: int, mark: str) -> int:
    place = _BLANKS.match(text, place).end()  # type: ignore[union-attr]
    if text[place : place + 1] != mark:
        raise ValueError(f"{mark} is missing at character {place}")
    return place + 1 if mark == '"' else _BLANKS.match(text, place + 1).end()  # type: ignore[union-attr]


def _ended(
    text: str, place: int, members: dict[str, tuple[Any, str]]
) -> dict[str, tuple[Any, str]]:
    if text[place:].strip(" \t\r\n"):
        raise ValueError(f"something stands behind it at character {place}")
    return members


def _no_constant(name: str) -> Any:  # noqa: ANN401 - never returns
    raise ValueError(f"{name} is no number of JSON")
