"""Comparisons of a value's text that differ from comparisons of the value. Pure.

A cast to string is the author's own word, and PostgreSQL compares its text alike; who reads the
view, or pasted the cast, may still take it for a comparison of values: `'12:00:00' > '12:00'`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from changelog.contract.rows.types import ColumnType
from views.meaning.types import Meaning, base_of, is_text, meaning_of, written
from views.rebuild.plan.parts import said

_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_ORDERED = (
    *(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Greatest, exp.Least),
    *(exp.Min, exp.Max, exp.Ordered),
)


def compared_texts(columns: Iterable[tuple[exp.Column, ColumnType]]) -> Iterator[str]:
    """Yield a sentence for each comparison of texts that looks like one of values.

    Args:
        columns: the places in a query of captured columns, with their types.
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
                f"{said(around)} compares texts by their code points, and not values of type "
                f"{base_of(kind.name)}{under}"
            )


def _is_cast(node: exp.Expr | None) -> bool:
    """Tell whether an expression is the text of a value."""
    if isinstance(node, exp.Concat):
        return len(node.expressions) == 1
    return isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES)


def _is_alike(around: exp.Expr, text: exp.Expr, meaning: Meaning) -> bool:
    """Tell whether an expression compares no texts, or with the answer of their values."""
    is_ordered = isinstance(around, _ORDERED)
    if not is_ordered and not isinstance(around, _EQUAL):
        return True
    if not (meaning.ordered if is_ordered else meaning.equal):
        return False
    others = [part for part in around.iter_expressions() if part is not text]
    return all(
        not (isinstance(part, exp.Literal) and part.is_string)
        or written(meaning, part.name) == part.name
        for part in others
    )
