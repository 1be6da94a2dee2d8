"""Lists in an order that Spark leaves open: `collect_list`, `collect_set`, unless sorted at once.

Such a list has the same elements in whatever order its rows arrive, so it is compared as a bag:
the lists of both engines are sorted first. That is only right if nothing has used the order before.
So a bag may be passed on, be put into a struct or another list, be counted or sorted; any other use
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from views.base.spark_sql import sources_of
from views.verify.values.types import Type, quoted

LISTS = (exp.ArrayAgg, exp.ArrayUniqueAgg)
_PASSING = (exp.Alias, exp.Paren, exp.Filter, exp.PropertyEQ)
"""Expressions whose value is that of the expression inside."""
_READERS = (exp.ArraySort, exp.ArraySize, exp.ArrayContains, *LISTS)
"""Functions whose result does not depend on the order of a list."""
_HOLDERS = (*_PASSING, exp.Struct, exp.Coalesce, exp.Select, exp.Subquery)


@dataclass(frozen=True, slots=True)
class BagPlaces:
    """The places in a value where there are bags."""

    is_bag: bool = False  # whether the value itself is one
    element: BagPlaces | None = None  # of a list, the places in its elements
    # of a struct, the places in its fields
    fields: Mapping[str, BagPlaces] = field(default_factory=dict)


def is_in_order(node: exp.Expr) -> bool:
    """Tell whether a list is collected in an order that the query says."""
    return isinstance(node, exp.ArrayAgg) and isinstance(node.this, exp.Order)


class Bags:
    """Finds the bags in a query whose columns are qualified."""

    def __init__(self, query: exp.Expr) -> None:
        self._sources = sources_of(query)

    def of(self, node: exp.Expr | None) -> BagPlaces | None:  # noqa: PLR0911 - one for each case
        """Return the bags in a value, or None if it holds none."""
        match node:
            case None:
                return None
            case exp.ArraySort():
                inner = self.of(node.this)
                return (
                    None
                    if inner is None or inner.element is None
                    else BagPlaces(element=inner.element)
                )
            case exp.ArrayAgg() if is_in_order(node):
                inner = self.of(node.this.this)
                return None if inner is None else BagPlaces(element=inner)
            case exp.ArrayAgg() | exp.ArrayUniqueAgg():
                return BagPlaces(is_bag=True, element=self.of(node.this))
            case exp.PropertyEQ():
                return self.of(node.expression)
            case exp.Coalesce():
                return self.of(node.this)
            case exp.Struct():
                fields = {
                    field.name if isinstance(field, exp.PropertyEQ) else field.alias_or_name: bag
                    for field in node.expressions
                    if (bag := self.of(field)) is not None
                }
                return BagPlaces(fields=fields) if fields else None
            case exp.Column():
                return self._column(node)
            case _ if isinstance(node, _PASSING):
                return self.of(node.this)
            case _:
                return None

    def misread(self, node: exp.Expr) -> str | None:
        """Return the reason why the result of reading bags depends on their order, or None."""
        if isinstance(node, exp.Select | exp.SetOperation) and self._is_distinct(node):
            return "lists in an order that is left open are compared"
        if not isinstance(node, exp.Column | exp.ArrayAgg | exp.ArrayUniqueAgg):
            return None
        if self.of(node) is None:
            return None
        outer = node.parent
        while isinstance(outer, _PASSING):
            outer = outer.parent
        if isinstance(outer, (*_HOLDERS, *_READERS)):
            return None
        return "Spark leaves the order of this list open: sort it, with sort_array(…)"

    def _is_distinct(self, node: exp.Select | exp.SetOperation) -> bool:
        items = [item for select in _selects(node) for item in select.selects]
        if isinstance(node, exp.Select) and node.args.get("distinct") is None:
            return False
        return any(self.of(item) is not None for item in items)

    def _column(self, node: exp.Column) -> BagPlaces | None:
        source = self._sources.get(id(node))
        if source is None:
            return None
        for select in _selects(source.expression):
            for item in select.selects:
                if item.alias_or_name.lower() == node.name.lower():
                    bag = self.of(item)
                    if bag is not None:
                        return bag
        return None


def _selects(query: exp.Expr) -> list[exp.Select]:
    if isinstance(query, exp.Select):
        return [query]
    if isinstance(query, exp.SetOperation):
        return _selects(query.left) + _selects(query.right)
    return _selects(query.this) if isinstance(query, exp.Subquery) else []


def in_order(value: str, kind: Type, bag: BagPlaces) -> str:
    """Return the SQL of a value with its bags sorted, innermost first."""
    if kind.name == "array":
        inner = value
        if bag.element is not None:
            element = in_order("__e", kind.fields[0][1], bag.element)
            inner = f"list_transform({value}, lambda __e: {element})"
        return f"list_sort({inner})" if bag.is_bag else inner
    if kind.name != "struct" or not bag.fields:
        return value
    lowered = {name.lower(): inner_bag for name, inner_bag in bag.fields.items()}
    fields = []
    for name, field_kind in kind.fields:
        own = f"({value}).{quoted(name)}"
        inner_bag = lowered.get(name.lower())
        ordered = own if inner_bag is None else in_order(own, field_kind, inner_bag)
        fields.append(f"{quoted(name)} := {ordered}")
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
