"""Types of values in PostgreSQL's SQL, and their types in Spark's. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from changelog.contract.rows.types import ColumnType, Kind, Locale

MOST_DIGITS = 38
KEPT_DIGITS = 6
"""Decimal places that Spark keeps of a decimal with too many digits for all of them."""
QUOTIENT_PLACES, AVERAGE_PLACES = 24, 20
"""Most decimal places of a quotient, and of an average of numbers with many digits."""
QUOTIENT_DIGITS = 37


@dataclass(frozen=True, slots=True)
class PgType:
    """The type of a value.

    Attributes:
        name: `int2`, `int4`, `int8`, `numeric`, `float4`, `float8`, `text`, `bpchar`, `bool`,
            `date`, `timestamp`, `timestamptz`; `unknown` for a constant in quotes and null; for
            any other type its own name.
        precision: digits of a numeric in Spark.
        scale: its decimal places.
        even: whether every value of a numeric has `scale` digits in PostgreSQL's text.
        labels: of an enum, in their order, as far as the log has them.
        parts: of JSON that the query makes, the names and types of an object's values, or without
            a name the type of a list's elements.
        locales: of the collations that a text may have; no matter of equality.
    """

    name: str
    precision: int = 0
    scale: int = 0
    even: bool = True
    labels: tuple[str, ...] = ()
    parts: tuple[tuple[str, PgType], ...] = ()
    locales: frozenset[Locale] = field(default=frozenset(), compare=False, repr=False)

    def __str__(self) -> str:
        base = self.name.removesuffix("[]")
        return _SHOWN.get(base, base) + self.name[len(base) :]

    @property
    def whole(self) -> int:
        """Return the digits of a numeric before the point."""
        return self.precision - self.scale


INT2, INT4, INT8 = PgType("int2"), PgType("int4"), PgType("int8")
FLOAT4, FLOAT8 = PgType("float4"), PgType("float8")
TEXT, BPCHAR, BOOL, UNKNOWN = PgType("text"), PgType("bpchar"), PgType("bool"), PgType("unknown")
DATE, TIMESTAMP, TIMESTAMPTZ = PgType("date"), PgType("timestamp"), PgType("timestamptz")
_SHOWN = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "char(n)",
    "bool": "boolean",
    "unknown": "a constant in quotes",
    "document": "JSON that the query makes",
}
WIDTHS = {"int2": 5, "int4": 10, "int8": 19}
"""Digits of the integers."""
INTEGERS = tuple(WIDTHS)
FLOATS = ("float4", "float8")
NUMBERS = (*INTEGERS, "numeric", *FLOATS)
TEXTS = ("text", "bpchar")
MOMENTS = ("date", "timestamp", "timestamptz")
_WITHOUT_LETTERS = (*NUMBERS, *MOMENTS, "bool")
OF_CODE_POINTS = {
    **dict.fromkeys(("C", "POSIX", "ucs_basic"), "C"),
    **dict.fromkeys(("C.utf8", "C.UTF-8", "pg_c_utf8"), ""),
}
"""Collations by code points with the rules by which letters change case under them."""
OF_LISTS = ("int2", "int4", "int8", "text")
"""Types of elements that are compared in lists."""
KNOWN = (*NUMBERS, *TEXTS, *MOMENTS, "bool")
"""Types with operators and functions; values of others are only compared and returned."""
_SIZE = re.compile(r"\(.*?\)")
_OF_KINDS = {
    Kind.BOOLEAN: BOOL,
    Kind.FLOAT: FLOAT4,
    Kind.DOUBLE: FLOAT8,
    Kind.DATE: DATE,
    Kind.TIMESTAMP: TIMESTAMP,
    Kind.TIMESTAMPTZ: TIMESTAMPTZ,
}
_OF_BASES = {
    "smallint": INT2,
    "integer": INT4,
    "bigint": INT8,
    "character": BPCHAR,
    "bpchar": BPCHAR,
    "text": TEXT,
    "character varying": TEXT,
    "name": TEXT,
}
_SPARK = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "text": "string",
    "bpchar": "string",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}


def numeric(precision: int, scale: int) -> PgType:
    """Return an exact numeric."""
    return PgType("numeric", precision, scale)


def of_column(column: ColumnType) -> PgType:
    """Return the type of a captured column."""
    if column.kind is Kind.DECIMAL:
        return numeric(column.precision, column.scale)
    if column.kind in _OF_KINDS:
        return _OF_KINDS[column.kind]
    if column.element is not None:
        return list_of(of_column(column.element))
    base = _SIZE.sub("", column.name).strip()
    if column.kind in {Kind.INT, Kind.LONG, Kind.STRING} and base in _OF_BASES:
        return with_locales(_OF_BASES[base], frozenset({column.locale}))
    own = frozenset({column.database})
    if column.sort == "enum":
        return PgType("enum", labels=column.labels, locales=own)
    return PgType("numeric as text" if base == "numeric" else base, locales=own)


def with_locales(kind: PgType, locales: frozenset[Locale]) -> PgType:
    """Return the type of a value which, if it is a text, may have these collations."""
    has_letters = (element_of(kind) or kind).name not in _WITHOUT_LETTERS
    return replace(kind, locales=locales) if has_letters and kind.locales != locales else kind


def list_of(kind: PgType) -> PgType:
    """Return the type of a list of values of a type."""
    return replace(kind, name=f"{kind.name}[]")


def document_of(parts: Sequence[tuple[str, PgType]]) -> PgType:
    """Return the type of JSON with these parts."""
    return PgType("document", parts=tuple(parts))


def element_of(kind: PgType) -> PgType | None:
    """Return the type of a list's elements; None for a type that is no list."""
    return replace(kind, name=kind.name[:-2]) if kind.name.endswith("[]") else None


def in_spark(kind: PgType) -> str:
    """Return the name of a type in Spark's SQL."""
    if (element := element_of(kind)) is not None:
        return f"array<{in_spark(element)}>"
    if kind.name == "document":
        (first, inner), *_ = kind.parts
        if not first:
            return f"array<{in_spark(inner)}>"
        fields = ", ".join(f"`{name}`: {in_spark(part)}" for name, part in kind.parts)
        return f"struct<{fields}>"
    if kind.name == "numeric":
        return f"decimal({kind.precision}, {kind.scale})"
    return _SPARK.get(kind.name, "string")


def as_numeric(kind: PgType, literal: str | None = None) -> PgType:
    """Return an integer type as a numeric; `literal` is of a constant, with its own digits."""
    if kind.name not in WIDTHS:
        return kind
    return numeric(len(literal.lstrip("-")) if literal else WIDTHS[kind.name], 0)


def bounded(precision: int, scale: int) -> PgType | None:
    """Return the type of a result in Spark, or None if Spark cuts its decimal places."""
    if precision <= MOST_DIGITS:
        return numeric(precision, scale)
    kept = max(MOST_DIGITS - (precision - scale), min(scale, KEPT_DIGITS))
    return numeric(MOST_DIGITS, scale) if kept >= scale else None


def widened(kinds: Sequence[PgType]) -> PgType | None:
    """Return the numeric for all values of several, or None if it has too many digits."""
    whole, scale = max(kind.whole for kind in kinds), max(kind.scale for kind in kinds)
    if whole + scale > MOST_DIGITS:
        return None
    even = all(kind.even and kind.scale == scale for kind in kinds)
    return PgType("numeric", whole + scale, scale, even)


def newest(kinds: Sequence[PgType]) -> PgType | None:
    """Return the enum with the most labels, or None if its order contradicts another enum's.

    Schemas of several tables may have been written before and after a label was added.
    """
    latest = max(kinds, key=lambda kind: len(kind.labels))

    def is_part(kind: PgType) -> bool:
        rest = iter(latest.labels)
        return all(label in rest for label in kind.labels)

    return latest if all(map(is_part, kinds)) else None


def common(kinds: Sequence[PgType]) -> PgType | None:
    """Return the type to which PostgreSQL converts several values, as in CASE and UNION.

    See "UNION, CASE, and Related Constructs" in its manual. None if there is none.
    """
    kind = _common(kinds)
    return kind and with_locales(kind, frozenset().union(*(one.locales for one in kinds)))


def _common(  # noqa: PLR0911 - one for each sort
    kinds: Sequence[PgType],
) -> PgType | None:
    typed = [kind for kind in kinds if kind.name != "unknown"]
    names = {kind.name for kind in typed}
    if not typed:
        return TEXT
    if names == {"numeric"} or (names <= {*INTEGERS, "numeric"} and "numeric" in names):
        return widened([as_numeric(kind) for kind in typed])
    if names == {"enum"}:
        return newest(typed)
    if len(names) == 1:
        whole = element_of(typed[0]) is None and names != {"document"}
        return typed[0] if len({*typed}) == 1 or whole else None
    if names <= {*INTEGERS}:
        return max(typed, key=lambda kind: INTEGERS.index(kind.name))
    if names <= {*NUMBERS}:
        return FLOAT8 if "float8" in names else FLOAT4
    if names == {"date", "timestamp"}:
        return TIMESTAMP
    return None  # for char(n) and text, it depends on their order
