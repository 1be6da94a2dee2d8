r"""A template of lines: text with fields in braces, `{key}\t{value}`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from changelog.contract.base.errors import ConfigurationError

HEADER = "header."  # what the field of one header begins with

FIELDS = {
    "key": "the key",
    "value": "the value",
    "topic": "the topic",
    "partition": "the partition",
    "offset": "the offset",
    "timestamp": "the record's time in milliseconds since 1970",
    "time": "the same in ISO 8601",
    "headers": "all headers, as an object of JSON",
    "position": "of our log: epoch:LSN:sequence",
    "lsn": "of our log: the commit's LSN",
    "op": "of our log: r, c, u, d or t",
    "ts": "of our log: the commit's time",
    "key_bytes": "the size of the key",
    "value_bytes": "the size of the value",
}
"""The fields and what each holds, beside `{header.NAME}`."""

DEFAULT = r"{key}\t{value}"
_PART = re.compile(
    r"(?P<brace>\{\{|\}\})|\{(?P<field>[^{}]*)\}|(?P<stray>[{}])|(?P<escape>\\(?:x[0-9a-fA-F]{2}|.))",
    re.DOTALL,
)
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", "0": b"\0", "\\": b"\\"}


@dataclass(frozen=True, slots=True)
class Field:
    """A place in a template that each record fills."""

    name: str


def parse_template(text: str) -> list[bytes | Field]:
    r"""Return the parts of a template.

    `{{` and `}}` are braces; `\t`, `\n`, `\r`, `\0`, `\\` and `\xFF` are one byte each.

    >>> parse_template(r"{key}\t{value}")
    [Field(name='key'), b'\t', Field(name='value')]

    Raises ConfigurationError: a field or an escape is unknown, or a brace stands alone.
    """
    parts: list[bytes | Field] = []
    place = 0
    for part in _PART.finditer(text):
        parts.append(text[place : part.start()].encode())
        place = part.end()
        if part["field"] is not None:
            parts.append(_field(part["field"]))
        elif part["stray"]:
            raise ConfigurationError(
                f'--format: a brace stands alone at "{text[part.start() :]}"',
                hint="{{ and }} stand for braces",
            )
        else:
            parts.append(part["brace"][0].encode() if part["brace"] else _byte(part["escape"]))
    return [piece for piece in [*parts, text[place:].encode()] if piece]


def unescaped(text: str, option: str) -> bytes:
    r"""Return the bytes of an option that may hold escapes: `\t`, `\n`, `\r`, `\0`, `\\`, `\xFF`.

    Raises ConfigurationError: an escape is unknown.
    """
    raw = b""
    for piece in re.split(r"(\\(?:x[0-9a-fA-F]{2}|.))", text, flags=re.DOTALL):
        raw += _byte(piece, option) if piece.startswith("\\") else piece.encode()
    return raw


def _byte(escape: str, option: str = "--format") -> bytes:
    if escape[1] == "x" and len(escape) > 2:  # noqa: PLR2004 - \x alone is none
        return bytes.fromhex(escape[2:])
    if escape[1:] not in _ESCAPES:
        raise ConfigurationError(
            f"{option}: {escape} is no escape", hint=r"\t \n \r \0 \\ and \xFF are"
        )
    return _ESCAPES[escape[1:]]


def _field(name: str) -> Field:
    if name in FIELDS or (name.startswith(HEADER) and name != HEADER):
        return Field(name)
    near = get_close_matches(name, [*FIELDS, f"{HEADER}NAME"], n=1, cutoff=0.6)
    raise ConfigurationError(
        f"--format: there is no field {{{name}}}",
        hint=f"did you mean {{{near[0]}}}?"
        if near
        else f"there are {', '.join(FIELDS)}, header.NAME",
    )
