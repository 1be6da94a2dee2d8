"""PostgreSQL column types and the Avro type that carries each one exactly.

| PostgreSQL | Avro | note |
|---|---|---|
| bool | boolean | |
| int2, int4 / int8, oid | int / long | |
| float4 / float8 | float / double | NaN and infinities are theirs |
| numeric(p, s), p <= 38 | bytes, decimal(p, s), with escape | NaN takes the escape |
| numeric | string | PostgreSQL's text, NaN and infinities too |
| text, varchar, bpchar, name, "char" | string | bpchar with its blanks |
| enums | string | the label |
| bytea | bytes | |
| date | int, date | infinities are the two ends of the 32 bits |
| timestamp | long, local-timestamp-micros | infinities are the two ends of the 64 bits |
| timestamptz | long, timestamp-micros | the same |
| time, timetz, interval | string | 24:00:00 has no Avro form; ISO 8601 for interval |
| uuid | string, uuid | |
| json, jsonb | string | PostgreSQL's text, not normalised |
| bit, varbit | string | `0101`: leading zeros count |
| money | string | under lc_monetary C: `-$1,234.56`, with two decimals |
| inet, cidr, macaddr, macaddr8 | string | `::1`, `10.0.0.0/8` |
| point, line, lseg, box, path, polygon, circle | string | `(1,2)`; floats in shortest form |
| ranges, multiranges, of any subtype | string | `[2024-01-01,infinity)`, `empty` |
| composite types | string | `(1,"a, b",)` |
| xml, jsonpath, tsvector, tsquery | string | |
| regclass, regtype, and the other reg types | string | the name that the object had then |
| xid, xid8, cid, tid, pg_lsn, pg_snapshot, txid_snapshot | string | |
| int2vector, oidvector, aclitem, refcursor | string | |
| types of well-known extensions | string | `EXTENSION_TYPES`: hstore, citext, geometry, vector, … |
| a domain | as its base type | also in a key, nested, as an array's element |
| arrays of these | nullable elements (numeric: text), escape | other dimensions, bounds: escape |
| anything else | string | PostgreSQL's text; capture says so once |

*Escape*: a type with a few values outside its Avro type is a union with one more branch, a
string that holds PostgreSQL's own text. Nothing is rounded and nothing stops the log; a reader
that has no place for such a value fails loudly instead of guessing.

Text is the proper form of those that have it above: no Avro type holds all their values, and the
text reads back in PostgreSQL as the same value. `SESSION_SETTINGS` fix how it is written. A
timestamp from the year 294247 on is the one value without a form: it is refused, the table and
the column named, unless it is in an array, which then takes its escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

MAX_DECIMAL_PRECISION = 38  # what Spark, DuckDB and Parquet hold; a wider numeric travels as text


class Kind(Enum):
    """The Avro shape of a column."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Locale:
    """Order and case of letters, under a collation or in a whole database."""

    # by which texts are sorted, where that is not the order of their code points
    collation: str = ""
    # by whose rules letters change case, where not by the simple ones of Unicode: `C` for the
    # letters of ASCII alone, `full` for the full ones of Unicode (of ICU), else the locale's name
    ctype: str = ""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column's type: PostgreSQL's name for it and the Avro shape that carries it."""

    name: str  # PostgreSQL's `format_type`, such as `numeric(10,2)` or `text[]`
    kind: Kind  # the Avro shape
    precision: int = 0  # total digits of a DECIMAL, else 0
    scale: int = 0  # digits behind the point of a DECIMAL, else 0
    element: ColumnType | None = None  # the element of an ARRAY, else None
    mapped: bool = True  # False for a type that we do not know and carry as text
    # what stands between the elements in an ARRAY's text; the log does not have it, so that it does
    # not count when types are compared
    delimiter: str = field(default=",", compare=False)
    # of a type of users: `enum`, `composite`, `range` or `multirange`; else empty. Like all
    # below it does not count when types are compared: it is no matter of a value
    sort: str = field(default="", compare=False)
    # of an enum, in their order
    labels: tuple[str, ...] = field(default=(), compare=False)
    # of a text's collation
    locale: Locale = field(default=Locale(), compare=False)
    # whether equal texts under the collation are the same texts
    deterministic: bool = field(default=True, compare=False)
    # of the database: for texts that are made of values of other types
    database: Locale = field(default=Locale(), compare=False)

    @property
    def collation(self) -> str:
        """Return the collation by which texts are sorted; empty for the order of code points."""
        return self.locale.collation

    @property
    def has_escape(self) -> bool:
        """Tell whether the union has a branch for PostgreSQL's own text."""
        return self.kind in {Kind.DECIMAL, Kind.ARRAY}


_SPARK = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.UUID: "string",
    Kind.BYTES: "binary",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
}


def spark_type(kind: ColumnType) -> str:
    """Return Spark's simple name of the type that a column is read as."""
    if kind.kind is Kind.DECIMAL:
        return f"decimal({kind.precision},{kind.scale})"
    return f"array<{spark_type(kind.element)}>" if kind.element is not None else _SPARK[kind.kind]


class TypType(Enum):
    """The sort of type according to `pg_type.typtype`; a domain counts as its base type."""

    BASE = "b"
    COMPOSITE = "c"
    ENUM = "e"
    PSEUDO = "p"
    RANGE = "r"
    MULTIRANGE = "m"


_KINDS = {
    "bool": Kind.BOOLEAN,
    "int2": Kind.INT,
    "int4": Kind.INT,
    "int8": Kind.LONG,
    "oid": Kind.LONG,
    "float4": Kind.FLOAT,
    "float8": Kind.DOUBLE,
    "bytea": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    "uuid": Kind.UUID,
}
_TEXTS = frozenset(
    """
    numeric text varchar bpchar char name time timetz interval json jsonb bit varbit money
    inet cidr macaddr macaddr8 point line lseg box path polygon circle
    xml jsonpath tsvector tsquery
    regclass regcollation regconfig regdatabase regdictionary regnamespace regoper regoperator
    regproc regprocedure regrole regtype
    xid xid8 cid tid pg_lsn pg_snapshot txid_snapshot int2vector oidvector aclitem refcursor
    """.split()  # noqa: SIM905 - a line for each family
)
EXTENSION_TYPES = frozenset(
    """
    citext hstore ltree lquery ltxtquery cube seg
    ean13 isbn isbn13 ismn ismn13 issn issn13 upc
    geometry geography box2d box3d raster
    vector halfvec sparsevec
    """.split()  # noqa: SIM905
)
"""Types of extensions (PostgreSQL's own, PostGIS, pgvector) whose text is their proper form."""
_DECIMAL = re.compile(r"numeric\((\d+),(-?\d+)\)")


def column_type(
    base: str,
    formatted: str,
    *,
    form: TypType = TypType.BASE,
    builtin: bool = True,
    labels: Sequence[str] = (),
) -> ColumnType:
    """Map a type that is neither an array nor a domain.

    `base` is `pg_type.typname`, such as `int4`; `formatted` is `format_type(oid, typmod)`, such as
    `numeric(10,2)`. One that is `builtin` is in the schema `pg_catalog`: users may name a type
    `date` too. `labels`: of an enum, in their order.
    """
    if form in {TypType.ENUM, TypType.COMPOSITE, TypType.RANGE, TypType.MULTIRANGE}:
        built = builtin and form in {TypType.RANGE, TypType.MULTIRANGE}
        sort = "" if built else form.name.lower()
        return ColumnType(formatted, Kind.STRING, sort=sort, labels=tuple(labels))
    if not builtin:
        return ColumnType(formatted, Kind.STRING, mapped=base in EXTENSION_TYPES)
    if base == "numeric" and (match := _DECIMAL.fullmatch(formatted)):
        precision, scale = int(match[1]), int(match[2])
        if precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision:
            return ColumnType(formatted, Kind.DECIMAL, precision, scale)
    kind = _KINDS.get(base)
    return ColumnType(formatted, kind or Kind.STRING, mapped=kind is not None or base in _TEXTS)


def array_type(element: ColumnType, formatted: str, delimiter: str = ",") -> ColumnType:
    """Map an array; an element that would need an escape of its own travels as text.

    `delimiter` is `pg_type.typdelim` of the element: `;` for `box`, `:` for PostGIS.
    """
    mapped = element.mapped
    if element.has_escape:
        element = replace(element, kind=Kind.STRING, precision=0, scale=0, element=None)
    return ColumnType(formatted, Kind.ARRAY, element=element, mapped=mapped, delimiter=delimiter)
