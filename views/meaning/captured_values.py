"""Finds the captured columns whose values each part of a query can have. Pure.

A value that is passed on (by a subquery, `coalesce`, a struct, a list) keeps its column's type; one
that a function or a cast computes has a type of the engine's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from changelog.contract.rows.types import ColumnType
from views.base.spark_sql import sources_of
from views.meaning.types import Meaning, is_text, list_of, meaning_of

Tables = Mapping[str, Mapping[str, ColumnType]]
"""A table's name in the query to its columns, in lower case, and their types."""

_FIRST = (
    *(exp.Alias, exp.Paren, exp.Filter, exp.Window, exp.Min, exp.Max, exp.First, exp.Last),
    *(exp.AnyValue, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
    *(exp.IgnoreNulls, exp.RespectNulls, exp.ArgMax, exp.ArgMin, exp.Distinct, exp.Ordered),
    exp.Order,
)
"""Expressions that return a value of their first argument."""
_INSIDE = (
    *(exp.Struct, exp.Array, exp.ArrayAgg, exp.ArrayUniqueAgg, exp.Tuple, exp.Map, exp.VarMap),
    *(exp.ArrayConcat, exp.ArraySlice, exp.ArraySort, exp.Flatten),
)
"""Expressions that put their arguments into a list, a struct or a map."""
_OUT = (exp.Bracket, exp.Dot, exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.PosexplodeOuter)
"""Expressions that take a value out of one."""
_OF_TEXTS = (
    *(exp.Concat, exp.ConcatWs, exp.DPipe, exp.Substring, exp.SubstringIndex, exp.Left, exp.Right),
    *(exp.Repeat, exp.Trim, exp.Upper, exp.Lower, exp.Initcap, exp.Replace, exp.Pad, exp.Reverse),
    *(exp.RegexpReplace, exp.RegexpExtract, exp.Translate, exp.SplitPart, exp.MD5, exp.SHA),
    *(exp.SHA2, exp.Hex, exp.Overlay, exp.GroupConcat, exp.Soundex),
)
"""Functions that return a text with the collation of their arguments, as in PostgreSQL."""
_OF_TEXTS_BY_NAME = {
    *("lpad", "rpad", "ltrim", "rtrim", "btrim", "mask", "sentences", "overlay", "insert"),
    *("substr", "substring_index", "split_part", "regexp_substr", "printf", "format_string"),
}
"""The same, for functions that sqlglot has no class for."""
_LISTS = (exp.Array, exp.ArrayAgg, exp.ArrayUniqueAgg)
"""Expressions that return a list of their arguments."""
_MAKERS = {"struct", "named_struct", "array", "map", "arrays_zip", "slice", "array_append"}
"""As `_INSIDE`, for functions that sqlglot has no class for."""
_TAKERS = {"element_at", "get", "try_element_at", "explode", "inline", "first", "last"}
"""As `_OUT`, for functions that sqlglot has no class for."""
BRANCHES = (exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
"""Functions that return one of their arguments."""


_OF_ITS_VALUE = (
    *(exp.Paren, exp.Alias, exp.Subquery, exp.Nullif, exp.Window, exp.Filter, exp.Lag, exp.Lead),
    *(exp.First, exp.Last, exp.AnyValue, exp.FirstValue, exp.LastValue, exp.IgnoreNulls),
    exp.RespectNulls,
)
"""Expressions that return a value of their first argument with its type, varchar(n) too."""


@dataclass(frozen=True, slots=True)
class CapturedValues:
    """The captured types of the values that a part of a query can have."""

    # names and meanings of PostgreSQL's types that compare unlike the form that carries them
    kinds: frozenset[tuple[str, Meaning]] = frozenset()
    nested: bool = False  # whether they may be inside a list or a struct
    mixed: bool = False  # whether other values are possible too, such as constants

    @property
    def meanings(self) -> list[Meaning]:
        """Return the meanings of the types."""
        return [meaning for _, meaning in self.kinds]

    @property
    def is_char(self) -> bool:
        """Tell whether comparisons ignore trailing blanks."""
        return any(meaning.is_char for meaning in self.meanings)

    @property
    def is_padded(self) -> bool:
        """Tell whether all values are padded to the same length."""
        lengths = {meaning.length for meaning in self.meanings}
        return not self.mixed and len(lengths) == 1 and bool({*lengths} - {0, None})

    def merged(self, other: CapturedValues) -> CapturedValues:
        """Return the captured values of an expression that returns either of two."""
        if not other.kinds or not self.kinds:
            return replace(self if self.kinds else other, mixed=True)
        return CapturedValues(
            self.kinds | other.kinds, self.nested or other.nested, self.mixed or other.mixed
        )


NOTHING = CapturedValues()


class ValueOrigins:
    """Finds the captured values of each part of a query whose columns are qualified."""

    def __init__(self, query: exp.Expr, tables: Tables) -> None:
        self._tables = tables
        self._sources = sources_of(query)
        self._cache: dict[int, CapturedValues] = {}

    def source(self, column: exp.Column) -> exp.Expr | Scope | None:
        """Return the source of a column: a table or a query; None if it is not known."""
        return self._sources.get(id(column))

    def of(self, node: exp.Expr | None) -> CapturedValues:
        """Return the captured values of a part of a query."""
        if node is None:
            return NOTHING
        if id(node) not in self._cache:
            self._cache[id(node)] = NOTHING
            self._cache[id(node)] = self._content(node)
        return self._cache[id(node)]

    def _content(  # noqa: C901, PLR0911, PLR0912 - one for each form
        self, node: exp.Expr
    ) -> CapturedValues:
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Query():
                return next(iter(self.of_query(node)), NOTHING)
            case exp.Nullif():
                return self.of(node.this)
            case _ if chosen := branches(node):
                return self._either(chosen)
            case exp.PropertyEQ():
                return self.of(node.expression)
            case _ if isinstance(node, _OF_TEXTS):
                return self._collated(node)
            case exp.Anonymous() if node.name.lower() in _OF_TEXTS_BY_NAME:
                return self._collated(node)
            case exp.Anonymous() if node.name.lower() in _MAKERS:
                return self._inside(node)
            case exp.Anonymous() if node.name.lower() in _TAKERS:
                return self._taken_out(node)
            case _ if isinstance(node, _FIRST):
                inner = node.this if node.args.get("this") is not None else None
                if inner is None and node.expressions:
                    inner = node.expressions[0]
                return self.of(inner)
            case _ if isinstance(node, _INSIDE):
                return self._inside(node)
            case _ if isinstance(node, _OUT):
                return self._taken_out(node)
            case _:
                return NOTHING

    def of_query(self, query: exp.Expr) -> list[CapturedValues]:
        """Return the captured values of each column of a query."""
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(query, exp.SetOperation):
            sides = self.of_query(query.left), self.of_query(query.right)
            return [
                one if one == other else one.merged(other)
                for one, other in zip_longest(*sides, fillvalue=NOTHING)
            ]
        if isinstance(query, exp.Select):
            return [self.of(item) for item in query.selects]
        return []

    def _either(self, values: list[exp.Expr]) -> CapturedValues:
        """Return the captured values of a choice of several; char and text together are text."""
        not_null = [value for value in values if not isinstance(value, exp.Null)]
        contents = [self.of(value) for value in not_null]
        if any(one.is_char for one in contents) and any(
            not one.kinds and not is_open(value)
            for one, value in zip(contents, not_null, strict=True)
        ):
            return NOTHING
        merged: CapturedValues | None = None
        for one in contents:
            merged = one if merged is None or merged == one else merged.merged(one)
        return NOTHING if merged is None else merged

    def _collated(self, node: exp.Expr) -> CapturedValues:
        """Return the result of a function of texts, which has the collation of its arguments.

        See "Collation Support" in PostgreSQL's manual. Collations that order by code points are
        left out: the engines compare every text like that.
        """
        kinds = frozenset(
            (name, Meaning("text", equal=meaning.equal, functions=True, advice=meaning.advice))
            for child in node.iter_expressions()
            for name, meaning in self.of(child).kinds
            if (is_text(meaning) or meaning.is_char) and not (meaning.equal and meaning.ordered)
        )
        return CapturedValues(kinds) if kinds else NOTHING

    def _inside(self, node: exp.Expr) -> CapturedValues:
        """Return the captured values inside a new list, struct or map."""
        kinds: frozenset[tuple[str, Meaning]] = frozenset()
        for child in node.iter_expressions():
            kinds |= self.of(child).kinds
        if isinstance(node, _LISTS):
            kinds = frozenset(
                (name, list_of(meaning) if meaning.is_list else meaning) for name, meaning in kinds
            )
        return CapturedValues(kinds, nested=True) if kinds else NOTHING

    def _taken_out(self, node: exp.Expr) -> CapturedValues:
        """Return the captured values of an element of a list, or of a field of a struct."""
        if isinstance(node, exp.Dot):
            return self.of(node.this)
        kinds: frozenset[tuple[str, Meaning]] = frozenset()
        nested = False
        for child in node.iter_expressions():
            content = self.of(child)
            for name, meaning in content.kinds:
                if not meaning.is_list:
                    kinds |= {(name, meaning)}
                    nested = True
                elif meaning.element is not None:
                    inner = meaning.element
                    kinds |= {(name if inner.is_list else name.removesuffix("[]"), inner)}
                    nested = nested or inner.is_list
        return CapturedValues(kinds, nested=nested) if kinds else NOTHING

    def _column(self, node: exp.Column) -> CapturedValues:
        source = self._sources.get(id(node))
        name = node.name.lower()
        if isinstance(source, exp.Table):
            return self._of_table(source.name, name)
        if isinstance(source, Scope):
            return self._of_scope(source, name)
        select = node.find_ancestor(exp.Select)
        for item in select.selects if isinstance(select, exp.Select) else ():
            if item.alias_or_name.lower() == name and item is not node and not _within(node, item):
                return self.of(item)
        merged = NOTHING
        for table in self._tables:  # unresolved: it may be of any table with that name
            if (content := self._of_table(table, name)).kinds:
                merged = merged.merged(content) if merged.kinds else content
        return merged

    def _of_table(self, table: str, column: str) -> CapturedValues:
        kind = self._tables.get(table, {}).get(column)
        meaning = None if kind is None else meaning_of(kind)
        if kind is None or meaning is None:
            return NOTHING
        return CapturedValues(frozenset({(kind.name, meaning)}), nested=kind.element is not None)

    def is_varchar(self, node: exp.Expr | None) -> bool:
        """Tell whether a value is or may be a varchar(n), also if a subquery passes it on."""
        match node:
            case _ if isinstance(node, _OF_ITS_VALUE):
                return self.is_varchar(node.this)
            case exp.SetOperation():
                return self.is_varchar(node.left) or self.is_varchar(node.right)
            case exp.Select():
                return bool(node.selects) and self.is_varchar(node.selects[0])
            case exp.Column():
                return self._is_varchar(node)
            case _:
                return node is not None and any(map(self.is_varchar, branches(node)))

    def _is_varchar(self, column: exp.Column) -> bool:
        source = self._sources.get(id(column))
        if isinstance(source, exp.Table):
            kind = self._tables.get(source.name, {}).get(column.name.lower())
            return kind is not None and kind.name.startswith("character varying")
        query = source.expression if isinstance(source, Scope) else None
        if isinstance(query, exp.SetOperation):
            query = query.left  # a set operation has the names of its first query
        if not isinstance(query, exp.Select):
            return False
        name = column.name.lower()
        items = (item for item in query.selects if item.alias_or_name.lower() == name)
        return any(map(self.is_varchar, items))

    def _of_scope(self, scope: Scope, name: str) -> CapturedValues:
        query = scope.expression
        if isinstance(query, exp.Query):
            names = list(query.named_selects)
            for place, content in enumerate(self.of_query(query)):
                if place < len(names) and names[place].lower() == name:
                    return content
            return NOTHING
        return self._taken_out(query)  # LATERAL VIEW


def _within(node: exp.Expr, item: exp.Expr) -> bool:
    """Tell whether a node is part of an item of a select list."""
    outer: exp.Expr | None = node
    while outer is not None and outer is not item:
        outer = outer.parent
    return outer is item


def branches(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that an expression chooses from; empty for other expressions."""
    match node:
        case exp.Case():
            values = [
                *(branch.args["true"] for branch in node.args["ifs"]),
                node.args.get("default"),
            ]
        case exp.If() if not isinstance(node.parent, exp.Case):
            values = [node.args["true"], node.args.get("false")]
        case exp.Coalesce() | exp.Greatest() | exp.Least():
            values = [node.this, *node.expressions]
        case _:
            values = []
    return [value for value in values if value is not None]


def is_open(value: exp.Expr) -> bool:
    """Tell whether a value has no type of its own: a constant text, or null."""
    value = value.unnest() if isinstance(value, exp.Paren) else value
    return isinstance(value, exp.Null) or (isinstance(value, exp.Literal) and value.is_string)
