"""Lines as kcat writes them: its tokens, its packed numbers, its object of JSON. Pure.

Each is what kcat 1.7.1 prints, byte by byte, but where that would tell something wrong: an empty
value is not NULL, `<` is little-endian, and bytes that are no text are no string of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError
from changelog.lines.forms.headers import Raw
from changelog.lines.forms.render import NULL, LineRenderer, keys, values
from changelog.lines.forms.shown import Show, text
from changelog.lines.forms.template import FIELDS, Field

TOKENS = {
    "s": "value",
    "S": "value_length",
    "R": "value_length_packed",
    "k": "key",
    "K": "key_length",
    "T": "timestamp",
    "h": "headers_listed",
    "t": "topic",
    "p": "partition",
    "o": "offset",
}
"""The field of each letter behind `%`."""

_PART = re.compile(r"%(?P<mark>.?)|\\(?P<escape>x[0-9a-fA-F]{1,2}|[0-9]+|.)", re.DOTALL)
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r"}
_OURS = re.compile(rf"\{{(?:{'|'.join(FIELDS)}|header\.[^{{}}]+)\}}")
_THEIRS = re.compile(rf"%[{''.join(TOKENS)}]")
_ESCAPED = re.compile(rb"\\(?:u00[01][0-9a-f]|[^u])")
_NUMBERS = {f"{order}{kind}": Struct(order + kind) for order in "<>" for kind in "bBhHiIqQ"}
_PACKED = " <>bBhHiIqQcs$"


def parse_tokens(template: str) -> list[bytes | Field]:
    r"""Return the parts of a template of kcat's.

    >>> parse_tokens(r"%k\t%s\n")
    [Field(name='key'), b'\t', Field(name='value'), b'\n']

    Raises ConfigurationError: a token is unknown, or the template is one of ours.
    """
    if _OURS.search(template) and not _THEIRS.search(template):
        raise ConfigurationError(
            f"-f is kcat's format, and {_OURS.search(template)[0]} is none of its tokens",  # type: ignore[index]
            hint=f"--format takes it; -f takes {', '.join(f'%{token}' for token in TOKENS)}",
        )
    parts: list[bytes | Field] = []
    place = 0
    for part in _PART.finditer(template):
        parts.append(template[place : part.start()].encode())
        place = part.end()
        if part["escape"] is not None:
            parts.append(_byte(part["escape"]))
        elif part["mark"] == "%":
            parts.append(b"%")
        elif part["mark"] in TOKENS:
            parts.append(Field(TOKENS[part["mark"]]))
        else:
            raise ConfigurationError(
                f"-f: there is no token %{part['mark']}",
                hint=f"there are {', '.join(f'%{token}' for token in TOKENS)} and %%",
            )
    return [piece for piece in [*parts, template[place:].encode()] if piece]


def check_ours(template: str) -> None:
    """Check that a template is not one of kcat's.

    Raises ConfigurationError: it has its tokens, and no field of ours.
    """
    theirs = _THEIRS.search(template)
    if theirs and not _OURS.search(template):
        raise ConfigurationError(
            f"--format: {theirs[0]} is a token of kcat's",
            hint="-f takes it; --format takes {key}, {value}, …",
        )


def _byte(escape: str) -> bytes:
    if escape[0] == "x" and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if escape.isdecimal():  # as C reads it: octal behind a zero
        return bytes([int(escape, 8 if escape[0] == "0" else 10) & 0xFF])
    return _ESCAPES.get(escape, escape.encode())


def unpacked(pack: str) -> Show:
    r"""Return the function that shows bytes by a pack string, as kcat's `-s` takes it.

    >>> unpacked(">hB s")(b"\xff\xfe\x07rest")
    b'-27 rest'

    Raises ConfigurationError: there is no such token.
    """
    unknown = sorted({*pack} - {*_PACKED})
    if unknown or not pack:
        raise ConfigurationError(
            f'-s "{pack}" is no way to read keys or values',
            hint=f"avro, or of {' '.join(_PACKED[1:])} and blanks, such as 'i$' or 'hB s'",
        )

    def show(raw: bytes) -> bytes:
        if not raw:  # kcat reads nothing of it, and shows nothing
            return b""
        shown, place, order = [], 0, ">"
        for token in pack:
            match token:
                case " ":
                    shown.append(b" ")
                case "<" | ">":
                    order = token
                case "s":
                    shown.append(raw[place:])
                    place = len(raw)
                case "$":
                    if place < len(raw):
                        raise CorruptRecordError(f"{len(raw) - place} bytes are left at $")
                case "c":
                    shown.append(_taken(raw, place, 1, token))
                    place += 1
                case _:
                    number = _NUMBERS[order + token]
                    taken = _taken(raw, place, number.size, token)
                    shown.append(str(number.unpack(taken)[0]).encode())
                    place += number.size
        return b"".join(shown)

    return show


def _taken(raw: bytes, place: int, size: int, token: str) -> bytes:
    if len(raw) - place < size:
        raise CorruptRecordError(f"{token} takes {size} bytes, and {len(raw) - place} are left")
    return raw[place : place + size]


def envelope_lines(
    topic: str, *, key: Show, value: Show, broker: Callable[[Any], int], delimiter: bytes
) -> LineRenderer:
    """Return the renderer of records as kcat's objects of JSON; a null is a null."""
    pattern = b'{"topic":"%b"' % topic.encode() + (  # its characters need no escapes
        b',"partition":%d,"offset":%d%b,"broker":%d%b,"key":%b,"payload":%b}'
    )
    return LineRenderer(
        pattern + delimiter.replace(b"%", b"%%"),
        [
            ("partition", lambda batch: [record.partition() for record in batch]),
            ("offset", lambda batch: [record.offset() for record in batch]),
            ("timestamp", lambda batch: [_stamp(*record.timestamp()) for record in batch]),
            ("broker", lambda batch: [broker(record) for record in batch]),
            ("headers", lambda batch: [_headers(record.headers()) for record in batch]),
            ("key", keys(key, NULL)),
            ("value", values(value, NULL)),
        ],
    )


_STAMPED = {1: b"create", 2: b"logappend"}


def _stamp(kind: int, ms: int) -> bytes:
    return b',"tstype":"%b","ts":%d' % (_STAMPED[kind], ms) if kind in _STAMPED else b""


def _headers(headers: Raw | None) -> bytes:
    if not headers:
        return b""
    return b',"headers":[%b]' % b",".join(_each(headers))


def _each(headers: Raw) -> Sequence[bytes]:
    items = []
    for name, value in headers:
        items.append(string(name.encode()))
        raw = value.encode() if isinstance(value, str) else value
        items.append(NULL if raw is None else string(raw))
    return items


def string(raw: bytes) -> bytes:
    r"""Return a text as yajl writes it for kcat, with capitals in `\u001F`.

    >>> print(string(rb"\u001f is " + bytes([31])).decode())
    "\\u001f is \u001F"

    Raises CorruptRecordError: it is not UTF-8.
    """
    shown = text(raw)
    if rb"\u00" not in shown:
        return shown
    return _ESCAPED.sub(lambda escape: escape[0][:2] + escape[0][2:].upper(), shown)


def with_schema(show: Show, name: str) -> Show:
    """Return the function that shows a framed key or value, and then its schema's id."""

    def both(raw: bytes) -> bytes:
        return b'%b,"%b":%d' % (show(raw), name.encode(), int.from_bytes(raw[1:5], "big"))

    return both
