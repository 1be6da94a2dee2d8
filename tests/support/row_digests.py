"""Rows of every type of a view, and the program of docs/certificate.md that computes their digest.

A date is its days and a moment its microseconds since 1970, a struct is a tuple.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from hypothesis import strategies as st

from views.verify.values.types import Type, arrow_type, parse_type

PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"
DATE_END, MOMENT_END = 2**31 - 1, 2**63 - 1
TYPES = {
    "id": "int",
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "big": "bigint",
    "real": "float",
    "double": "double",
    "money": "decimal(10,2)",
    "ratio": "decimal(4,4)",
    "whole": "decimal(38,0)",
    "fine": "decimal(38,18)",
    "text": "string",
    "raw": "binary",
    "day": "date",
    "zoned": "timestamp",
    "local": "timestamp_ntz",
    "numbers": "array<int>",
    "texts": "array<string>",
    "moments": "array<timestamp>",
    "prices": "array<decimal(10,2)>",
    "doubles": "array<double>",
    "days": "array<date>",
    "bytes": "array<binary>",
    "pair": "struct<code:string,`a b`:decimal(10,2),at:timestamp_ntz,raw:binary,x:float>",
    "named": "map<string,bigint>",
    "items": "array<struct<sku:string,n:int,tags:array<string>>>",
    "deep": "map<string,array<struct<d:date,f:double>>>",
    "empty": "struct<>",
}
KINDS = {name: parse_type(text) for name, text in TYPES.items()}
EDGES: dict[str, list[Any]] = {
    "float": [0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-149, 2.0**-126, -1.5],
    "double": [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e308, 2.0**-1022, 0.1 + 0.2, 1.0],
    "string": ["", "-", "e\u0301", "\u00e9", "😀", " a ", "a\nb", "'\"\\", "n1:1", "null"],
    "binary": [b"", b"\x00\xff", b"abc"],
    "date": [0, -1, 2_145_031_948, -2_440_588, DATE_END, -DATE_END],
    "timestamp": [0, -1, 10**15 + 1, 9_223_371_331_199_999_999, MOMENT_END, -MOMENT_END],
    "boolean": [True, False],
}
EDGES["timestamp_ntz"] = EDGES["timestamp"]
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of the years that Python knows: what a document's text has."""


def program() -> dict[str, Any]:
    """Run the program in docs/certificate.md; return its definitions."""
    listing = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert listing is not None
    names: dict[str, Any] = {}
    exec(listing[1], names)  # noqa: S102 - it is our own page
    return names


def model_kind(kind: Type) -> tuple[Any, ...]:
    """Return a type as the program takes it."""
    return kind.name, *(model_kind(field) for _, field in kind.fields)


def values(kind: Type, *, nested: bool = False) -> st.SearchStrategy[Any]:
    """Values of a type, nulls among them; `nested` ones fit in a document."""
    return st.none() | _present(kind, nested=nested)


def _present(kind: Type, *, nested: bool) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one a type
    match kind.name:
        case "tinyint" | "smallint" | "int" | "bigint":
            bits = _BITS[kind.name]
            return st.integers(-(2**bits), 2**bits - 1)
        case "decimal":
            most = 10**kind.precision - 1
            return st.sampled_from([0, 1, -1, 10, most, -most]).map(_scaled(kind)) | st.integers(
                -most, most
            ).map(_scaled(kind))
        case "float" | "double":
            edges = EDGES[kind.name]
            if nested:  # a JSON number has no sign of zero, and a NaN or an infinity is a text
                edges = [edge for edge in edges if str(edge) != "-0.0"]
            width: Literal[32, 64] = 32 if kind.name == "float" else 64
            return st.sampled_from(edges) | st.floats(width=width).filter(
                lambda number: not nested or str(number) != "-0.0"
            )
        case "string":
            letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
            return st.sampled_from(EDGES["string"]) | st.text(letters, max_size=8)
        case "binary":
            return st.sampled_from(EDGES["binary"]) | st.binary(max_size=6)
        case "date":
            days = st.integers(_FIRST_DAY, _LAST_DAY)
            return days if nested else days | st.sampled_from(EDGES["date"])
        case "timestamp" | "timestamp_ntz":
            micros = st.integers(_FIRST_DAY * 86_400_000_000, _LAST_DAY * 86_400_000_000)
            return micros if nested else micros | st.sampled_from(EDGES["timestamp"])
        case "array":
            inside = nested or kind.fields[0][1].name in {"array", "struct", "map"}
            return st.lists(values(kind.fields[0][1], nested=inside), max_size=3)
        case "struct":
            return st.tuples(*(values(field, nested=True) for _, field in kind.fields))
        case "map":
            (_, key), (_, item) = kind.fields
            return st.dictionaries(
                _present(key, nested=True), values(item, nested=True), max_size=3
            )
        case _:
            return st.booleans()


def _scaled(kind: Type) -> Callable[[int], Decimal]:
    def scaled(unscaled: int) -> Decimal:
        sign, digits, _ = Decimal(unscaled).as_tuple()
        return Decimal((sign, digits, -kind.scale))  # exact, whatever the context's precision

    return scaled


def rows_of(names: list[str]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows of some columns, the first of which is a key."""
    others = [values(KINDS[name]) for name in names[1:]]
    row = st.tuples(st.integers(-(2**31), 2**31 - 1), *others)
    return st.lists(row, max_size=12, unique_by=lambda row: row[0])


def edge_rows() -> list[tuple[Any, ...]]:
    """Rows that have each edge of each type once; the first has nulls alone but for its key."""
    most = max(map(len, EDGES.values()))
    rows: list[tuple[Any, ...]] = [(0, *[None] * (len(TYPES) - 1))]
    for place in range(most):
        row: list[Any] = [place + 1]
        for kind in list(KINDS.values())[1:]:
            edges = EDGES.get(kind.name) or _edges(kind)
            row.append(edges[place % len(edges)])
        rows.append(tuple(row))
    return rows


def _edges(kind: Type) -> list[Any]:
    match kind.name:
        case "decimal":
            digits = [0, 1, -1, 10, 100, 10**kind.precision - 1, 1 - 10**kind.precision]
            return [_scaled(kind)(number) for number in digits]
        case "array":
            element = kind.fields[0][1]
            inner = EDGES.get(element.name) or _edges(element)
            return [[], [None], inner, [*inner[:2], None, *inner[:1]]]
        case "struct":
            firsts = [_documented(field)[0] for _, field in kind.fields]
            lasts = [_documented(field)[-1] for _, field in kind.fields]
            return [tuple(firsts), tuple(lasts), tuple(None for _ in firsts)]
        case "map":
            item = _documented(kind.fields[1][1])
            return [{}, {"b": item[0], "a": item[-1], "": None}, {"é": item[0], "z": item[0]}]
        case _:
            bits = _BITS[kind.name]
            return [0, -1, 9, 10, 2**bits - 1, -(2**bits)]


def _documented(kind: Type) -> list[Any]:
    """Edges of a type that a document can hold."""
    match kind.name:
        case "float" | "double":
            return [edge for edge in EDGES[kind.name] if str(edge) != "-0.0"]
        case "date":
            return [0, _FIRST_DAY, _LAST_DAY]
        case "timestamp" | "timestamp_ntz":
            return [0, -1, 1_709_200_800_000_001]
        case "array":
            return [[], [None, *_documented(kind.fields[0][1])]]
        case _:
            return EDGES.get(kind.name) or _edges(kind)


def arrow_table(rows: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    """Return rows as the verifier reads them from a sink."""
    columns = {}
    for place, name in enumerate(names):
        kind = KINDS[name]
        columns[name] = pa.array([arrow_value(row[place], kind) for row in rows], arrow_type(kind))
    return pa.table(columns)


def arrow_value(value: Any, kind: Type) -> Any:  # noqa: PLR0911 - one for each type
    if value is None:
        return None
    match kind.name:
        case "date":
            return pa.scalar(value, pa.int32()).cast(pa.date32())
        case "timestamp" | "timestamp_ntz":
            return pa.scalar(value, pa.int64()).cast(pa.timestamp("us"))
        case "array":
            return [arrow_value(item, kind.fields[0][1]) for item in value]
        case "struct":
            pairs = zip(kind.fields, value, strict=True)
            return {name: arrow_value(item, field) for (name, field), item in pairs}
        case "map":
            return [(key, arrow_value(item, kind.fields[1][1])) for key, item in value.items()]
        case _:
            return value


def document(value: Any, kind: Type) -> Any:  # noqa: PLR0911 - one for each type
    """Return a value in the JSON form in which sinks write documents."""
    if value is None:
        return None
    match kind.name:
        case "decimal":
            return format(value, "f")
        case "float" | "double" if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case "binary":
            return base64.b64encode(value).decode()
        case "date":
            return (date(1970, 1, 1) + timedelta(value)).isoformat()
        case "timestamp" | "timestamp_ntz":
            moment = datetime(1970, 1, 1) + timedelta(microseconds=value)  # noqa: DTZ001
            return moment.isoformat(timespec="microseconds") + "Z" * (kind.name == "timestamp")
        case "array":
            return [document(item, kind.fields[0][1]) for item in value]
        case "struct":
            pairs = zip(kind.fields, value, strict=True)
            return {name: document(item, field) for (name, field), item in pairs}
        case "map":
            return {key: document(item, kind.fields[1][1]) for key, item in value.items()}
        case _:
            return value


def json_text(value: Any, kind: Type) -> str | None:
    """Return a document's text."""
    return None if value is None else json.dumps(document(value, kind))
