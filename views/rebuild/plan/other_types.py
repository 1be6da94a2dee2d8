"""Values of a view whose type is another one than PostgreSQL would give them. Pure.

The language is Spark's, so these are legal and may be meant; readers of the view would be surprised
by a moment that has got a time zone, or by a quotient of six digits. The plan says it, with what to
write for PostgreSQL's type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType, Kind
from views.rebuild.plan.numbers import Number, Sort, number_of
from views.verify.values.names import folded, parsed, reading_name, schema_of

_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
    Kind.BYTES: "binary",
}
_TEXTS = re.compile(r"('(?:[^']|'')*')")
_DType = exp.DataType.Type
_ZONED = (_DType.TIMESTAMPTZ, _DType.TIMESTAMPLTZ)
_WITHOUT = (_DType.TIMESTAMP, _DType.TIMESTAMPNTZ, _DType.DATE)


def other_types(sql: str, tables: Mapping[TableName, Mapping[str, ColumnType]]) -> tuple[str, ...]:
    """Return a sentence for each value whose type is not PostgreSQL's; none if it is not known."""
    schema = schema_of(
        {
            reading_name(table): {folded(name): _name_of(kind) for name, kind in columns.items()}
            for table, columns in tables.items()
        }
    )
    try:
        query = qualify(parsed(sql, tables), schema=schema, dialect="spark")
        query = annotate_types(query, schema=schema, dialect="spark")
    except (SqlglotError, RecursionError):
        return ()  # said elsewhere: the query cannot be proved, or does not parse
    return tuple(dict.fromkeys(_sentences(query)))


def _sentences(query: exp.Expr) -> Iterator[str]:
    for node in query.walk():
        match node:
            case exp.DateTrunc() | exp.TimestampTrunc() if _is(node.this, _WITHOUT):
                yield from _zoned(node)
            case exp.Cast() if node.to.is_type(*_ZONED) and _is(node.this, _WITHOUT):
                yield from _zoned(node)
            case exp.Cast() if node.to.is_type(*exp.DataType.TEXT_TYPES) and _is(node.this, _ZONED):
                yield f"{_said(node)} has no offset, which PostgreSQL's text of it has"
            case exp.Sum() if _is(node.this, (_DType.FLOAT,)):
                yield f"{_said(node)} is a double, where PostgreSQL's sum of reals is a real"
            case exp.Div() | exp.Avg() | exp.Mul() | exp.Add() | exp.Sub():
                yield from _numbers(node)
            case _:
                continue


def _name_of(kind: ColumnType) -> str:
    if kind.kind is Kind.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    return _TYPES.get(kind.kind, "string")


def _numbers(node: exp.Div | exp.Avg | exp.Mul | exp.Add | exp.Sub) -> Iterator[str]:
    found = number_of(node)
    if isinstance(node, exp.Avg):
        of = number_of(node.this)
        if of is not None and of.sort is Sort.DECIMAL:
            yield (
                f"{_said(node)} has {_digits(found)} after the point, where PostgreSQL's average "
                "of numerics has 16 significant ones and more"
            )
        elif of is not None and of.sort is Sort.WHOLE:
            yield f"{_said(node)} is a double, where PostgreSQL's average of integers is a numeric"
        return
    sides = [number_of(side) for side in (node.left, node.right)]
    if any(side is None for side in sides):
        return
    sorts = {side.sort for side in sides if side is not None}
    if isinstance(node, exp.Div):
        if sorts == {Sort.WHOLE}:
            yield (
                f"{_said(node)} is a double with its fraction, where PostgreSQL divides integers "
                f"without one: write {_said(node.left)} div {_said(node.right)}"
            )
        elif Sort.FLOAT not in sorts:
            yield (
                f"{_said(node)} has {_digits(found)} after the point, where PostgreSQL's quotient "
                "of numerics has 16 significant ones and more"
            )
    elif found is not None and found.cut:
        yield (
            f"{_said(node)} is rounded to {_digits(found)} after the point, where PostgreSQL's is "
            "exact: cast its parts to fewer digits"
        )


def _digits(number: Number | None) -> str:
    if number is None or number.size is None:
        return "6 digits or more"
    return f"{number.size[1]} digits"


def _is(node: exp.Expr, types: tuple[Any, ...]) -> bool:
    return node.type is not None and node.type.is_type(*types)


def _zoned(node: exp.Expr) -> Iterator[str]:
    # Of a date PostgreSQL's date_trunc has a zone, too.
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc) and _is(node.this, (_DType.DATE,)):
        return
    around = node.parent
    if isinstance(around, exp.Cast) and around.to.is_type(*_WITHOUT):
        return
    inner = _said(node.this if isinstance(node, exp.Cast) else node)
    yield (
        f"{_said(node)} has a time zone here, and none in PostgreSQL: write "
        f"cast({inner} as timestamp_ntz)"
    )


def _said(node: exp.Expr) -> str:
    """Return the expression as its author may have written it, without the names of tables."""
    plain = node.copy()
    for column in plain.find_all(exp.Column):
        column.set("table", None)
        column.this.set("quoted", False)
    parts = _TEXTS.split(plain.sql(dialect="spark"))
    return "".join(part if place % 2 else part.lower() for place, part in enumerate(parts))
