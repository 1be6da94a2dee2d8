"""Types of columns on both sides, and the form in which two of them are compared. Pure.

| source | target | compared as |
|---|---|---|
| whole numbers, `numeric` | whole numbers, decimals | their value: 1.0 is 1.00 |
| the same | floats | the float that is nearest; a note says so |
| `real`, `double precision` | floats, decimals | the bits: -0.0 is not 0.0; each NaN is the same |
| `text`, `varchar`, enums, others | text | the bytes of UTF-8, nothing normalised |
| `char(n)` | text | without blanks at the end, as PostgreSQL compares it |
| `timestamp`, `timestamptz`, `date` | moments | microseconds in UTC |
| `json`, `jsonb` | JSON, structures | the value: neither order nor blanks nor 1.0 for 1 matter |
| `bytea`, `uuid`, `boolean`, `time` | the same | the value |
| arrays of one dimension | lists | element by element |
| any | text | the value that the text says |

Null is apart from all of them, so from an empty text too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """A family of types with one canonical text for each value."""

    INTEGER = "whole number"
    NUMERIC = "numeric"
    REAL = "real"
    DOUBLE = "double precision"
    TEXT = "text"
    PADDED = "char(n)"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    UUID = "uuid"
    JSON = "JSON"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    PLAIN = "PostgreSQL's text"  # of a type that has no family here, such as inet
    OPAQUE = "no form"  # of a target's type that nothing is compared with


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which two columns are compared."""

    kind: Kind
    is_list: bool = False  # of values of the kind

    def __str__(self) -> str:
        return f"list of {self.kind.value}" if self.is_list else self.kind.value


@dataclass(frozen=True, slots=True)
class Native:
    """The type of a column where it is stored."""

    name: str  # as its server writes it
    kind: Kind
    is_list: bool = False
    zoned: bool = False  # of a moment: whether it has a time zone
    cast: str = ""  # the type's name in a cast, where it differs from `name`


@dataclass(frozen=True, slots=True)
class Pair:
    """Two columns that can be compared: the form, and a limit of the comparison, if any."""

    form: Form
    note: str = ""


_NUMBERS = {Kind.INTEGER, Kind.NUMERIC}
_FLOATS = {Kind.REAL, Kind.DOUBLE}
_TEXTS = {Kind.TEXT, Kind.PADDED, Kind.PLAIN}
_MOMENTS = {Kind.DATE, Kind.TIMESTAMP}


def pair(source: Native, target: Native) -> Pair | None:
    """Return the form in which two columns are compared; None if there is none."""
    if source.is_list or target.is_list:
        return _pair_lists(source, source.kind, target, target.kind)
    kind = _common(source.kind, target.kind)
    return None if kind is None else Pair(Form(kind), _note(source, target, kind))


def _pair_lists(source: Native, own: Kind, target: Native, other: Kind) -> Pair | None:
    if source.is_list and target.is_list:
        kind = _common(own, other)
        return None if kind is None else Pair(Form(kind, is_list=True))
    if source.is_list and other in _TEXTS:
        return Pair(Form(Kind.PLAIN), "a list is compared with the text that PostgreSQL writes")
    return None


def _common(source: Kind, target: Kind) -> Kind | None:  # noqa: PLR0911 - the table
    both = {source, target}
    if Kind.OPAQUE in both:
        return None
    if source is target:
        return source
    if both <= _NUMBERS:
        return Kind.NUMERIC
    if both <= _NUMBERS | _FLOATS:
        return Kind.REAL if Kind.REAL in both and Kind.DOUBLE not in both else Kind.DOUBLE
    if both <= _TEXTS:
        return Kind.PADDED if Kind.PADDED in both else Kind.TEXT
    if both <= _MOMENTS:
        return Kind.TIMESTAMP
    if source in _TEXTS:
        return Kind.TEXT
    return source if target in _TEXTS else None


def have_one_text(source: Native, target: Native) -> bool:
    """Tell whether equal values of two columns are written alike on both sides, as keys must be.

    A key is looked for by its text. A number that stands in a text has several: 1.5, 1.50, 15e-1.
    """
    both = {source.kind, target.kind}
    if Kind.JSON in both:
        return False
    if source.is_list or target.is_list:
        return source.is_list and target.is_list
    if len(both) == 1 or any(both <= family for family in _FAMILIES):
        return True
    return bool(both & _TEXTS) and bool(both & _PLAIN_AS_TEXT)


_FAMILIES = (_NUMBERS | _FLOATS, _TEXTS, _MOMENTS)
_PLAIN_AS_TEXT = {Kind.INTEGER, Kind.UUID, Kind.DATE}


def _note(source: Native, target: Native, kind: Kind) -> str:
    if kind in _FLOATS and not {source.kind, target.kind} <= _FLOATS:
        return f"compared as {kind.value}: further digits cannot be seen"
    if kind is Kind.TIMESTAMP and source.zoned is not target.zoned:
        zoneless = target if source.zoned else source
        if zoneless.kind is Kind.TIMESTAMP:
            return f"{zoneless.name} is read as UTC"
    return ""
