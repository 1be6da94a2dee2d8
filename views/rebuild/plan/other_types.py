"""Notes on values of a view that would have another type, or value, in PostgreSQL. Pure.

The language is Spark's, so these are legal and may be intended; but readers of the view may be
surprised by a timestamp with a time zone, or a quotient of six digits. The plan names them, with
what to write for PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import ColumnType, Kind, column_type
from views.meaning.types import Meaning, base_of, carried_form, is_text, meaning_of
from views.rebuild.plan.numbers import Sort, SparkNumber, number_of
from views.rebuild.plan.other_values import Nulls, other_values
from views.rebuild.plan.parts import WITHOUT_ZONE, ZONED, DType, captured_columns, is_of, text_of
from views.verify.values.names import folded, reading_name


def other_types(
    query: exp.Expr | None,
    sql: str,
    tables: Mapping[TableName, Mapping[str, ColumnType]],
    filled: Mapping[TableName, Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each value that is not PostgreSQL's, or not of its type.

    `query`: with qualified columns and inferred types; None if it could not be parsed. `tables`:
    names and types of the columns of the captured tables. `filled`: the columns without nulls.
    """
    if query is None:
        return ()  # reported elsewhere: the query cannot be proved, or does not parse
    never = {
        reading_name(table): {folded(name) for name in names}
        for table, names in (filled or {}).items()
    }
    values = other_values(query, sql, Nulls(query, sql, never))
    captured = {
        (reading_name(table), folded(name)): kind
        for table, columns in tables.items()
        for name, kind in columns.items()
    }
    columns = [*captured_columns(query, captured)]
    more = (*_intervals(columns), *values, *_compared_texts(columns))
    return tuple(dict.fromkeys((*_sentences(query), *_lists(query, captured), *more)))


def _lists(query: exp.Expr, captured: Mapping[tuple[str, str], ColumnType]) -> Iterator[str]:
    """Yield a sentence for each list of numerics of a view, whose elements are texts on the log."""
    for scope in (leaf for whole in traverse_scope(query)[-1:] for leaf in _leaves(whole)):
        for item in scope.expression.selects if isinstance(scope.expression, exp.Select) else ():
            kind = _captured(item.unalias(), scope, captured)
            if kind is None or kind.kind is not Kind.ARRAY:
                continue
            one = column_type("numeric", kind.name.removesuffix("[]"))
            if one.kind is Kind.DECIMAL:
                yield (
                    f"{text_of(item)} is a list of texts, where PostgreSQL's is one of numerics: "
                    f"write cast({text_of(item)}[0] as decimal({one.precision}, {one.scale})) for "
                    "an element"
                )


def _leaves(scope: Scope) -> Iterator[Scope]:
    """Yield the scopes of the queries that give rows; a UNION has several."""
    if not scope.set_operation_scopes:
        yield scope
    for part in scope.set_operation_scopes:
        yield from _leaves(part)


def _captured(
    value: exp.Expr, scope: Scope, captured: Mapping[tuple[str, str], ColumnType]
) -> ColumnType | None:
    """Return the type of a captured column, also through inner queries; None for other values."""
    if not isinstance(value, exp.Column):
        return None
    source = scope.sources.get(value.table)
    if isinstance(source, exp.Table):
        return captured.get((source.name, value.name))
    inner = next(_leaves(source)) if isinstance(source, Scope) else None
    if inner is None or not isinstance(inner.expression, exp.Select):
        return None
    names = inner.expression.named_selects
    if value.name not in names:
        return None
    item = inner.expression.selects[names.index(value.name)]
    return _captured(item.unalias(), inner, captured)


def _intervals(columns: Iterable[tuple[exp.Column, ColumnType]]) -> Iterator[str]:
    """Yield a sentence for each text of an interval, which IntervalStyle decides in PostgreSQL."""
    for column, kind in columns:
        around = column.parent
        is_text = isinstance(around, exp.Concat | exp.ConcatWs | exp.DPipe) or (
            isinstance(around, exp.Cast) and around.to.is_type(*exp.DataType.TEXT_TYPES)
        )
        if is_text and base_of(kind.name) == "interval" and around is not None:
            yield (
                f"{text_of(column)} in {text_of(around)} is ISO 8601 text such as P1DT2H, "
                "PostgreSQL's under IntervalStyle iso_8601"
            )


def _sentences(query: exp.Expr) -> Iterator[str]:
    for node in query.walk():
        match node:
            case exp.DateTrunc() | exp.TimestampTrunc() if is_of(node.this, WITHOUT_ZONE):
                yield from _zoned(node)
            case exp.Cast() if node.to.is_type(*ZONED) and is_of(node.this, WITHOUT_ZONE):
                yield from _zoned(node)
            case exp.Cast() if node.to.is_type(*ZONED) and _is_shown(node):
                yield from _zoned(node)
            case exp.Cast() if node.to.is_type(*exp.DataType.TEXT_TYPES) and is_of(
                node.this, ZONED
            ):
                yield f"{text_of(node)} has no offset, which PostgreSQL's text of it has"
            case exp.Sum() if is_of(node.this, (DType.FLOAT,)):
                yield f"{text_of(node)} is a double, where PostgreSQL's sum of reals is a real"
            case exp.Div() | exp.Avg() | exp.Mul() | exp.Add() | exp.Sub():
                yield from _numbers(node)
            case _:
                continue


def _is_shown(node: exp.Cast) -> bool:
    """Tell whether the cast of a value becomes a column of a query, rather than being compared."""
    if isinstance(node.this, exp.Null):
        return False
    around: exp.Expr | None = node.parent
    while isinstance(around, exp.Paren | exp.Alias | exp.Coalesce | exp.Case | exp.If):
        around = around.parent
    return isinstance(around, exp.Select)


def _numbers(node: exp.Div | exp.Avg | exp.Mul | exp.Add | exp.Sub) -> Iterator[str]:
    number = number_of(node)
    if isinstance(node, exp.Avg):
        of = number_of(node.this)
        if of is not None and of.sort is Sort.DECIMAL:
            yield (
                f"{text_of(node)} has {_digits(number)} after the point, where PostgreSQL's "
                "average of numerics has 16 significant ones and more"
            )
        elif of is not None and of.sort is Sort.WHOLE:
            yield (
                f"{text_of(node)} is a double, where PostgreSQL's average of integers is a numeric"
            )
        return
    sides = [number_of(side) for side in (node.left, node.right)]
    if any(side is None for side in sides):
        return
    sorts = {side.sort for side in sides if side is not None}
    if isinstance(node, exp.Div):
        if sorts == {Sort.WHOLE}:
            yield (
                f"{text_of(node)} is a double with its fraction, where PostgreSQL divides integers "
                f"without one: write {text_of(node.left)} div {text_of(node.right)}"
            )
        elif Sort.FLOAT not in sorts:
            yield (
                f"{text_of(node)} has {_digits(number)} after the point, where PostgreSQL's "
                "quotient of numerics has 16 significant ones and more"
            )
    elif number is not None and number.cut:
        yield (
            f"{text_of(node)} is rounded to {_digits(number)} after the point, where PostgreSQL's "
            "is exact: cast its parts to fewer digits"
        )


def _digits(number: SparkNumber | None) -> str:
    if number is None or number.size is None:
        return "6 digits or more"
    return f"{number.size[1]} digits"


def _zoned(node: exp.Expr) -> Iterator[str]:
    # Of a date PostgreSQL's date_trunc has a zone, too.
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc) and is_of(node.this, (DType.DATE,)):
        return
    around = node.parent
    if isinstance(around, exp.Cast) and around.to.is_type(*WITHOUT_ZONE):
        return
    inner = text_of(node.this if isinstance(node, exp.Cast) else node)
    yield (
        f"{text_of(node)} has a time zone here, and none in PostgreSQL: write "
        f"cast({inner} as timestamp_ntz)"
    )


# A cast to string may be intended, and PostgreSQL compares the texts the same way; but a reader of
# the view, or an author who pasted the cast, may take it for a comparison of values: `'12:00:00' >
# '12:00'`.
_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_ORDERED = (
    *(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Greatest, exp.Least),
    *(exp.Min, exp.Max, exp.Ordered),
)


def _compared_texts(columns: Iterable[tuple[exp.Column, ColumnType]]) -> Iterator[str]:
    """Yield a sentence for each comparison of texts that looks like one of values.

    `columns`: the places in a query of captured columns, with their types.
    """
    for column, kind in columns:
        meaning = meaning_of(kind)
        if meaning is None or meaning.is_list or not _is_cast(column.parent):
            continue
        text = column.parent
        around = text.parent if text is not None else None
        while isinstance(around, exp.Paren):
            text, around = around, around.parent
        if text is not None and around is not None and not _is_alike(around, text, meaning):
            under = f" under {kind.collation}" if is_text(meaning) else ""
            yield (
                f"{text_of(around)} compares texts by their code points, and not values of type "
                f"{base_of(kind.name)}{under}"
            )


def _is_cast(node: exp.Expr | None) -> bool:
    """Tell whether an expression is the text of a value."""
    if isinstance(node, exp.Concat):
        return len(node.expressions) == 1
    return isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES)


def _is_alike(around: exp.Expr, text: exp.Expr, meaning: Meaning) -> bool:
    """Tell whether an expression compares no texts, or gives the result of comparing values."""
    is_ordered = isinstance(around, _ORDERED)
    if not is_ordered and not isinstance(around, _EQUAL):
        return True
    if not (meaning.ordered if is_ordered else meaning.equal):
        return False
    others = [part for part in around.iter_expressions() if part is not text]
    return all(
        not (isinstance(part, exp.Literal) and part.is_string)
        or carried_form(meaning, part.name) == part.name
        for part in others
    )
