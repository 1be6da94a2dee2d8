"""Types of columns on both sides, and the form in which two columns are compared. Pure.

| source | target | compared as |
|---|---|---|
| integers, `numeric` | integers, decimals | their value: 1.0 equals 1.00 |
| the same | floats | the nearest float; a note says so |
| `real`, `double precision` | floats, decimals | the bits: -0.0 is not 0.0; all NaNs are equal |
| `text`, `varchar`, enums, others | text | the UTF-8 bytes, nothing normalised |
| `char(n)` | text | without trailing blanks, as PostgreSQL compares it |
| `timestamp`, `timestamptz`, `date` | moments | microseconds in UTC |
| `json`, `jsonb` | JSON, structures, lists | the value: order, blanks and 1.0 for 1 do not matter |
| `bytea`, `uuid`, `boolean`, `time` | the same | the value |
| `interval` | text | months, days and microseconds |
| arrays of one dimension | lists | element by element |
| any | text | the value that the text stands for |
| text | decimals, floats | the value that the text stands for |
| any | a field of JSON documents | the value that the JSON stands for |

Null equals only null; in particular it differs from an empty text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TypeFamily(Enum):
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
    INTERVAL = "interval"
    PLAIN = "PostgreSQL's text"  # for a type that has no family of its own, such as inet
    EMPTY = "nulls"  # a column of files whose values are all null, which so has no type
    OPAQUE = "no form"  # a type of the target that cannot be compared with anything


@dataclass(frozen=True, slots=True)
class CompareForm:
    """The form in which two columns are compared."""

    kind: TypeFamily
    is_list: bool = False  # whether each column is a list of such values

    def __str__(self) -> str:
        return f"list of {self.kind.value}" if self.is_list else self.kind.value


@dataclass(frozen=True, slots=True)
class Native:
    """The type of a column where it is stored."""

    name: str  # as its server writes it
    kind: TypeFamily
    is_list: bool = False
    zoned: bool = False  # whether a moment has a time zone
    cast: str = ""  # for DuckDB: the name of the element's type of a list, else of the type
    is_document: bool = False  # whether it is a field of JSON documents: the text of any JSON value


@dataclass(frozen=True, slots=True)
class Pair:
    """The form in which two columns can be compared, and a limit of the comparison, if any."""

    form: CompareForm
    note: str = ""


_NUMBERS = {TypeFamily.INTEGER, TypeFamily.NUMERIC}
_FLOATS = {TypeFamily.REAL, TypeFamily.DOUBLE}
_TEXTS = {TypeFamily.TEXT, TypeFamily.PADDED, TypeFamily.PLAIN}
_MOMENTS = {TypeFamily.DATE, TypeFamily.TIMESTAMP}


def pair(source: Native, target: Native) -> Pair | None:
    """Return the form in which two columns are compared; None if there is none."""
    if source.is_list or target.is_list:
        return _pair_lists(source, target)
    kind = _common(source.kind, target.kind)
    return None if kind is None else Pair(CompareForm(kind), _note(source, target, kind))


def _pair_lists(source: Native, target: Native) -> Pair | None:
    if source.is_list and target.is_list:
        kind = _common(source.kind, target.kind)
        return None if kind is None else Pair(CompareForm(kind, is_list=True))
    if source.is_list and target.is_document:
        return Pair(CompareForm(source.kind, is_list=True))
    if source.is_list and target.kind in _TEXTS:
        return Pair(
            CompareForm(TypeFamily.PLAIN), "a list is compared with the text that PostgreSQL writes"
        )
    is_json = source.kind is TypeFamily.JSON and not source.is_list
    if is_json or target.kind is TypeFamily.EMPTY:
        return Pair(CompareForm(source.kind, source.is_list))
    return None


def _common(source: TypeFamily, target: TypeFamily) -> TypeFamily | None:  # noqa: PLR0911 - one per rule
    both = {source, target}
    if TypeFamily.OPAQUE in both:
        return None
    if source is target or target is TypeFamily.EMPTY:
        return source
    if both <= _NUMBERS:
        return TypeFamily.NUMERIC
    if both <= _NUMBERS | _FLOATS:
        return (
            TypeFamily.REAL
            if TypeFamily.REAL in both and TypeFamily.DOUBLE not in both
            else TypeFamily.DOUBLE
        )
    if both <= _TEXTS:
        return TypeFamily.PADDED if TypeFamily.PADDED in both else TypeFamily.TEXT
    if both <= _MOMENTS:
        return TypeFamily.TIMESTAMP
    if source in _TEXTS:
        if target is TypeFamily.BYTES:
            return None  # bytes have no text but that of another program
        return target if target in _FLOATS | {TypeFamily.NUMERIC} else TypeFamily.TEXT
    return source if target in _TEXTS else None


def is_sent(form: CompareForm, source: Native, target: Native) -> bool:
    """Return whether digests take a column as the bytes that its type's send function gives.

    Otherwise they take its canonical text. Both sides have the same type then, and a target that is
    no PostgreSQL can write these bytes.
    """
    if form.is_list or source.kind is not target.kind or form.kind not in _SENT:
        return False
    if form.kind is TypeFamily.JSON:
        return source.name == target.name == "jsonb"  # `json` may be none that `jsonb` takes
    return not target.cast or (form.kind in _SENT_BY_DUCKDB and not _is_beyond(target.cast))


def _is_beyond(cast: str) -> bool:
    """Return whether a type of DuckDB has values that PostgreSQL's type of the family has not."""
    return cast in {"HUGEINT", "UHUGEINT", "UBIGINT"} or cast.endswith("_NS")


_SENT_BY_DUCKDB = {
    *(TypeFamily.INTEGER, TypeFamily.NUMERIC, TypeFamily.REAL, TypeFamily.DOUBLE, TypeFamily.TEXT),
    *(TypeFamily.BOOLEAN, TypeFamily.BYTES, TypeFamily.DATE, TypeFamily.TIMESTAMP),
}
_SENT = {*_SENT_BY_DUCKDB, TypeFamily.PADDED, TypeFamily.UUID, TypeFamily.JSON, TypeFamily.TIME}


def have_one_text(source: Native, target: Native) -> bool:
    """Return whether equal values of two columns have the same text, which keys need.

    Rows are found by the text of their key, and a number stored as text has several texts: 1.5,
    1.50, 15e-1.
    """
    both = {source.kind, target.kind}
    if TypeFamily.JSON in both:
        return False
    if source.is_list or target.is_list:
        return source.is_list and target.is_list
    if len(both) == 1 or any(both <= family for family in _FAMILIES):
        return True
    return bool(both & _TEXTS) and bool(both & _PLAIN_AS_TEXT)


_FAMILIES = (_NUMBERS | _FLOATS, _TEXTS, _MOMENTS)
_PLAIN_AS_TEXT = {TypeFamily.INTEGER, TypeFamily.UUID, TypeFamily.DATE}


def _note(source: Native, target: Native, kind: TypeFamily) -> str:
    if source.kind in _FLOATS and target.is_document:
        return ""  # a number of JSON is most often a float as well
    if kind in _FLOATS and not {source.kind, target.kind} <= _FLOATS:
        return f"compared as {kind.value}: digits beyond its precision are not compared"
    if kind is TypeFamily.PADDED and target.kind is TypeFamily.PADDED is not source.kind:
        return f"{target.name} keeps no trailing blanks: they are not compared"
    if kind is TypeFamily.TIMESTAMP and source.zoned is not target.zoned:
        zoneless = target if source.zoned else source
        if zoneless.kind is TypeFamily.TIMESTAMP:
            return f"{zoneless.name} is read as UTC"
    return ""
