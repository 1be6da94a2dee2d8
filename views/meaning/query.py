"""Rewrites a view's query to compare values as PostgreSQL does, or refuses it. Pure.

Each place of the query that depends on equality or order of a captured value is checked. Where the
carried form compares unlike the column's type, the query is refused, with what to write instead.
Only for char(n) the query's text is changed: in these places, and where PostgreSQL converts it to
text, its trailing blanks are removed; where it is only returned, it keeps them. The result of an
explicit cast to string is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import TokenType

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.types import ColumnType
from views.base.spark_sql import SparkSql, briefly, shown
from views.meaning.captured_values import BRANCHES, CapturedValues, ValueOrigins, branches, is_open
from views.meaning.mixed import check_mixed
from views.meaning.spelled import check_aliases, check_rows, check_spelled
from views.meaning.types import (
    IN_THE_TABLE,
    Meaning,
    carried_form,
    constant_advice,
    is_advised_as_text,
    is_joined,
    is_text,
    meaning_of,
)
from views.project.spec import SqlSource

Edit = tuple[int, int, str]
"""Start and end of a part of the text, the end exclusive, and its replacement."""

_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.EqualNull)
_LESS = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_LIKE = (exp.Like, exp.ILike, exp.SimilarTo, exp.RegexpLike, exp.RegexpILike)
_PASSED_ON = (
    *(exp.Select, exp.SetOperation, exp.Alias, exp.Paren, exp.Subquery, exp.From, exp.Where),
    *(exp.Having, exp.Join, exp.Connector, exp.Not, exp.With, exp.CTE, exp.Lateral, exp.UDTF),
    *(exp.Explode, exp.Posexplode, exp.Inline, exp.Struct, exp.PropertyEQ, exp.Array, exp.Map),
    *(exp.VarMap, exp.Count, exp.Is, exp.ArrayAgg, exp.First, exp.Last, exp.AnyValue),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.IgnoreNulls),
    *(exp.RespectNulls, exp.Filter, exp.Bracket, exp.Dot, exp.Concat, exp.ConcatWs, exp.Tuple),
    *(exp.ArraySize, exp.JSONFormat, exp.Column, exp.Table, exp.TableAlias, exp.Exists, exp.Limit),
    *(exp.ArrayConcat, exp.ArraySlice, exp.Flatten, exp.Values, exp.Order, exp.Window),
    *(exp.Ordered, exp.Distinct, exp.Group, exp.Case, exp.If, exp.Coalesce, exp.Hint, exp.Qualify),
    *(exp.Transform, exp.DPipe, exp.Nvl2, exp.Tuple, exp.ArrayToString, exp.GroupingSets),
    *(exp.Rollup, exp.Cube, exp.Grouping),
)
"""Expressions that neither compare their values nor use their text."""
_BY_NAME = {
    *("struct", "named_struct", "array", "map", "element_at", "get", "try_element_at", "isnull"),
    *("isnotnull", "to_json", "size", "cardinality", "slice", "array_append", "typeof"),
    *("octet_length", "arrays_zip", "inline", "map_keys", "map_values", "array_repeat"),
}
"""The same, for functions that sqlglot has no class for."""
_EQUAL_INSIDE = (
    *(exp.ArrayContains, exp.ArrayDistinct, exp.ArrayExcept, exp.ArrayIntersect),
    *(exp.ArrayPosition, exp.ArrayRemove, exp.ArrayUniqueAgg, exp.Mode, exp.ApproxDistinct),
)
"""Functions that compare elements or values by equality."""
_EQUAL_BY_NAME = {
    "arrays_overlap",
    "has_all",
    "array_union",
    "array_agg_distinct",
    "count_distinct",
}
"""The same, for functions that sqlglot has no class for."""
_ORDERED_INSIDE = (exp.ArraySort, exp.ArrayMax, exp.ArrayMin, exp.Quantile, exp.Median)
"""Functions that sort elements or values."""
_CUT_ALONE = {"varchar", "nvarchar"}
"""Types with a length to which PostgreSQL cuts texts without padding them."""
_OF_LENGTH = {"char", "character", "nchar", "bpchar"} | _CUT_ALONE
_SETS = ("rollup", "cube", "grouping_sets")
_ELEMENT_OF = ("get", "element_at", "try_element_at")
_CAST_BY_VALUE = {
    **dict.fromkeys(("bit", "bit varying"), "a column in the table that has it as an integer"),
    "money": "a numeric(19,2) column in the table",
    '"char"': "cast({} AS string), for its letter",
}
"""Types that PostgreSQL casts to numbers by their value, not their text; and what to write."""
_BLANKS = re.compile(r"[ ]+(?=['\"]$)")
"""The blanks at the end of a constant in quotes."""


def query_as_meant(
    sql: SqlSource,
    tables: Mapping[tuple[str, str], Mapping[str, ColumnType]],
    key: Sequence[str],
    primary: Mapping[tuple[str, str], Sequence[str]],
) -> str:
    """Return the text of a query over tables alone as the engines must compute it.

    `sql`: the query over tables alone. `tables`: the columns of each captured table, by schema and
    name, and their types. `primary`: the primary key of each table.

    Raises ViewError: a comparison means something else in the engines than in PostgreSQL; the text
    names the column, and says what to write.
    """
    checked = {
        name
        for columns in tables.values()
        for name, kind in columns.items()
        if meaning_of(kind) is not None
    }
    _check_lengths(sql.text)
    tables_read = {(place.table.schema, place.table.table) for place in sql.references}
    check_spelled(sql.text, {name for table in tables_read for name in tables.get(table, ())})
    try:
        query, flat, keys = _qualified(sql, tables, primary)
    except (SqlglotError, RecursionError, KeyError):
        return _unread(sql.text, tables)
    origins = ValueOrigins(query, flat)
    check_mixed(query, flat, origins)
    check_rows(query)
    check_aliases(query, flat)
    return _ComparisonCheck(sql.text, query, origins, key, keys).text() if checked else sql.text


def _qualified(
    sql: SqlSource,
    tables: Mapping[tuple[str, str], Mapping[str, ColumnType]],
    primary: Mapping[tuple[str, str], Sequence[str]],
) -> tuple[exp.Expr, dict[str, dict[str, ColumnType]], dict[str, set[str]]]:
    """Return the query with qualified columns and its tables, each under a unique name."""
    query = sqlglot.parse_one(sql.text, dialect=SparkSql)
    places = {place.start: place for place in sql.references}
    flat: dict[str, dict[str, ColumnType]] = {}
    keys: dict[str, set[str]] = {}
    names: dict[tuple[str, str], str] = {}
    unaliased = set()
    for table in list(query.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            continue
        place = places.get(table.parts[0].meta.get("start", -1))
        if place is None:
            continue
        own = (place.table.schema, place.table.table)
        name = names.setdefault(own, f"captured_{len(names)}")
        columns = tables.get(own, {})
        flat[name] = {column.lower(): kind for column, kind in columns.items()}
        keys[name] = {column.lower() for column in primary.get(own, ())}
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
            unaliased.add((table.db, table.alias))
        table.set("this", exp.to_identifier(name, quoted=True))
        table.set("db", None)
    for column in query.find_all(exp.Column):
        if column.args.get("db") is not None and (column.db, column.table) in unaliased:
            column.set("db", None)
    schema = MappingSchema(
        {name: dict.fromkeys(columns, "string") for name, columns in flat.items() if columns},
        dialect="spark",
        normalize=False,
    )
    qualified = qualify(
        query,
        schema=schema,
        dialect="spark",
        validate_qualify_columns=False,
        expand_alias_refs=False,
        quote_identifiers=False,
    )
    return qualified, flat, keys


def _check_lengths(text: str) -> None:
    """Refuse casts to varchar(n) and char(n): PostgreSQL cuts and pads there, Spark does neither.

    The tokens are checked: in a parsed query of Spark's dialect, both are a string.
    """
    tokens = sqlglot.tokenize(text, read=SparkSql)
    for before, kind, opening, length in zip(
        tokens, tokens[1:], tokens[2:], tokens[3:], strict=False
    ):
        name = kind.text.lower()
        is_cast = before.token_type in {TokenType.ALIAS, TokenType.DCOLON}
        if not is_cast or name not in _OF_LENGTH or opening.token_type != TokenType.L_PAREN:
            continue
        cut = f"left(cast(… AS string), {length.text})"
        pads = name not in _CUT_ALONE
        raise ViewError(
            f"a cast to {name}({length.text}): PostgreSQL cuts the text"
            + (" and pads it with blanks" if pads else "")
            + ", the engines do not",
            hint="write " + (f"rpad({cut}, {length.text}, ' ')" if pads else cut),
        )


def _unread(text: str, tables: Mapping[tuple[str, str], Mapping[str, ColumnType]]) -> str:
    """Refuse a query that does not parse, if it names a column whose comparisons need a check."""
    words = {token.text.lower() for token in sqlglot.tokenize(text, read=SparkSql)}
    for columns in tables.values():
        for name, kind in columns.items():
            if meaning_of(kind) is not None and (name.lower() in words or "*" in words):
                raise ViewError(
                    f'the query is not understood here, so it is not known how "{name}" '
                    f"({kind.name}) is compared in it",
                    hint=f"read it as cast({name} AS string) in a subquery, or leave it out",
                )
    return text


class _ComparisonCheck:
    """Checks and rewrites the comparisons of one query."""

    def __init__(
        self,
        text: str,
        query: exp.Expr,
        origins: ValueOrigins,
        key: Sequence[str],
        primary: Mapping[str, set[str]],
    ) -> None:
        self._text = text
        self._query = query
        self._origins = origins
        self._key = {name.lower() for name in key}
        self._primary = primary
        self._edits: set[Edit] = set()
        self._stripped: set[int] = set()

    def text(self) -> str:
        """Return the query's text as the engines must compute it."""
        extremes = []
        for node in self._query.walk():
            if isinstance(node, exp.Min | exp.Max):
                extremes.append(node)
            else:
                self._check(node)
        for extreme in extremes:
            self._extreme(extreme)
        self._own_key()
        text = self._text
        edits = sorted(self._edits, reverse=True)
        self._check_names(edits)
        for start, end, new in edits:
            text = text[:start] + new + text[end:]
        return text

    # Comparisons

    def _check(self, node: exp.Expr) -> None:  # noqa: C901, PLR0912, PLR0915 - one for each form
        match node:
            case _ if isinstance(node, _EQUAL):
                self._compared(node, [node.this, node.expression])
            case _ if isinstance(node, _LESS):
                self._compared(node, [node.this, node.expression], order=True)
            case exp.Between():
                values = [node.this, node.args["low"], node.args["high"]]
                self._compared(node, values, order=True)
            case exp.In():
                inner = node.args.get("query")
                others = [inner] if inner is not None else node.expressions
                self._compared(node, [node.this, *others])
            case exp.Greatest() | exp.Least():
                self._compared(node, [node.this, *node.expressions], order=True, shown=True)
            case exp.Nullif():
                self._compared(node, [node.this, node.expression], shown=True)
            case exp.Case() if node.this is not None:
                self._compared(node, [node.this, *(branch.this for branch in node.args["ifs"])])
            case exp.DecodeCase():
                self._compared(node, list(node.expressions), shown=True)
            case exp.Coalesce() | exp.Case() | exp.If() | exp.Nvl2():
                self._unified(node)
            case exp.Array() | exp.Lag() | exp.Lead():
                self._unified(node)
            case exp.Trim() if not node.expression and node.args.get("position") != "LEADING":
                return  # removes the blanks in both
            case exp.ConcatWs() if node.expressions:
                self._as_text(node, node.expressions[0], refused=False)
            case exp.GroupConcat() if isinstance(node.this, exp.Order):
                self._as_text(node, node.this.this, refused=True)
            case exp.Ordered() if self._order_matters(node):
                self._ordered(node, node.this)
            case exp.ArgMax() | exp.ArgMin():
                self._ordered(node, node.expression)
            case exp.Window():
                for part in node.args.get("partition_by") or ():
                    self._grouped(node, part)
            case exp.Group():
                for part in _grouping(node):
                    self._grouped(node, part)
            case exp.Distinct():
                for part in self._made_distinct(node):
                    self._grouped(node, part)
            case exp.SetOperation():
                self._set_operation(node)
            case _ if isinstance(node, _LIKE):
                self._matched(node)
            case exp.Lambda():
                self._of_elements(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                self._null(node)
            case exp.Cast():
                self._cast(node)
            case exp.DPipe():
                for part in (node.this, node.expression):
                    self._joined(node, part)
                    self._as_text(node, part, refused=False)
            case _ if isinstance(node, _EQUAL_INSIDE):
                self._inside(node)
            case _ if isinstance(node, _ORDERED_INSIDE):
                self._inside(node, order=True)
            case exp.Anonymous() if node.name.lower() in _EQUAL_BY_NAME:
                self._inside(node)
            case exp.Anonymous() if node.name.lower() in _BY_NAME:
                return
            case _ if isinstance(node, _PASSED_ON):
                return
            case _:
                for part in node.iter_expressions():
                    self._as_text(node, part, refused=True)

    def _cast(self, node: exp.Cast) -> None:
        for name, meaning in self._origins.of(node.this).kinds:
            if meaning.base in _CAST_BY_VALUE and not _is_text_type(node.to):
                why = "its cast is of the value, not of its text"
                advice = _CAST_BY_VALUE[meaning.base]
                raise self._refusal(node, name, meaning, why, advice=advice)
            if meaning.base == "inet" and not meaning.is_list and _is_text_type(node.to):
                raise self._refusal(
                    node, name, meaning, "its cast writes the netmask of a single host, too",
                    advice="concat({}), which is '10.0.0.1' in both",
                )  # fmt: skip
        self._as_text(node, node.this, refused=False)

    def _null(self, node: exp.Is) -> None:
        """Refuse IS NULL of a composite value: PostgreSQL tests each of its fields."""
        for name, meaning in self._origins.of(node.this).kinds:
            if meaning.is_composite and not meaning.is_list:
                raise self._refusal(
                    node, name, meaning, "IS NULL is true of one whose fields are all null",
                    advice="cast({} AS string) IS NULL, for a value that is null itself",
                )  # fmt: skip

    def _compared(
        self, node: exp.Expr, values: list[exp.Expr], *, order: bool = False, shown: bool = False
    ) -> None:
        """Check values that are compared with each other.

        `order`: whether their order counts. `shown`: whether one of them is the result.
        """
        contents = [self._origins.of(value) for value in values]
        meanings = [(name, meaning) for one in contents for name, meaning in one.kinds]
        if not meanings:
            return
        if any(one.nested for one in contents):
            for name, meaning in meanings:
                self._require(node, name, meaning, order=order, nested=True)
            self._compared_nested(node, values, contents)
            return
        chars = [one.is_char for one in contents]
        if any(chars):
            self._compared_chars(node, values, contents, order=order, shown=shown)
            return
        for name, meaning in meanings:
            self._require(node, name, meaning, order=order)
        first = meanings[0][1]
        for name, meaning in meanings[1:]:
            if meaning.base != first.base and not (is_text(meaning) and is_text(first)):
                raise self._refusal(
                    node, meanings[0][0], first, f"PostgreSQL does not compare it with {name}"
                )
        for value, one in zip(values, contents, strict=True):
            if not one.kinds:
                self._check_other(node, value, *meanings[0])

    def _compared_nested(
        self, node: exp.Expr, values: list[exp.Expr], contents: list[CapturedValues]
    ) -> None:
        """Check compared lists and structs: their inner values have to be of the same types."""
        for value in values:
            if isinstance(value, exp.Literal):
                name, meaning = min(
                    (k for h in contents for k in h.kinds), key=lambda kind: kind[0]
                )
                why = "a constant has the form array(…) here"
                raise self._refusal(node, name, meaning, why)
        for value, one in zip(values, contents, strict=True):
            alike = one.kinds == contents[0].kinds and not one.mixed
            plain = all(meaning.is_plain_list for h in contents for meaning in h.meanings)
            if alike or isinstance(value, exp.Null) or plain:
                continue
            name, meaning = min(
                (kind for h in contents for kind in h.kinds), key=lambda kind: kind[0]
            )
            raise self._refusal(node, name, meaning, "the other value has other types inside")

    def _compared_chars(
        self,
        node: exp.Expr,
        values: list[exp.Expr],
        contents: list[CapturedValues],
        *,
        order: bool,
        shown: bool,
    ) -> None:
        kinds = frozenset(kind for one in contents for kind in one.kinds)
        others = {one.is_char for one in contents[1:]}
        if not contents[0].is_char and len(others) > 1:
            name, meaning = _char_of(kinds)
            why = "trailing blanks are ignored beside it, and not beside the other values"
            raise self._refusal(node, name, meaning, why, advice="a comparison for each of them")
        for name, meaning in kinds:
            if not meaning.is_char and not is_text(meaning):
                raise self._refusal(
                    node, name, meaning, "PostgreSQL does not compare it with char(n)"
                )
            self._require(node, name, meaning, order=order)
        if not order and all(one.is_padded for one in contents) and len(kinds) == 1:
            return  # padded alike, so they are equal with their blanks if and only if without them
        if shown:
            name, meaning = _char_of(kinds)
            raise self._refusal(
                node, name, meaning, "blanks at its end do not count, and would be shown",
                advice="rtrim({}), or CASE WHEN with a comparison",
            )  # fmt: skip
        for value, one in zip(values, contents, strict=True):
            # PostgreSQL compares char(n) with varchar(n) as char(n), and with text as text.
            if one.is_char or self._origins.is_varchar(value):
                self._strip(node, value)
            elif isinstance(value, exp.Literal) and not value.is_string:
                name, meaning = _char_of(kinds)
                raise self._refusal(
                    node, name, meaning, "PostgreSQL does not compare it with a number"
                )
            elif isinstance(value, exp.Literal) and value.name.endswith(" "):
                self._strip(node, value)

    def _check_other(self, node: exp.Expr, value: exp.Expr, name: str, meaning: Meaning) -> None:
        """Check a value without a captured type that is compared with one of a captured type."""
        value = value.unnest() if isinstance(value, exp.Paren) else value
        if is_text(meaning) or isinstance(value, exp.Null):
            return
        if isinstance(value, exp.Literal) and value.is_string:
            form = carried_form(meaning, value.name)
            place = self._place(value)
            if form is None or (form != value.name and place is None):
                why = f"it is not known how {value.sql('spark')} is written as one"
                raise self._refusal(node, name, meaning, why, advice=constant_advice(meaning))
            if form != value.name and place is not None:
                self._edits.add((*place, f"'{form}'"))
            return
        if meaning.base == "bytea" and isinstance(value, exp.HexString):
            return
        advice = "" if value.find(exp.Column) else constant_advice(meaning)
        why = "it is compared with a value of another type"
        raise self._refusal(node, name, meaning, why, advice=advice)

    def _unified(self, node: exp.Expr) -> None:
        """Remove the blanks of a char among several values whose result is a text."""
        values = _of_one_type(node)
        contents = [self._origins.of(value) for value in values]
        if not any(one.is_char for one in contents):
            kinds = [kind for one in contents for kind in one.kinds]
            for value, one in zip(values, contents, strict=True):
                if kinds and not one.kinds and isinstance(value, exp.Literal):
                    self._check_other(node, value, *kinds[0])
            return
        if all(one.kinds or is_open(value) for one, value in zip(contents, values, strict=True)):
            # The default of lag and lead is converted to a domain too, which pads it; a constant
            # in a branch is converted to the domain's base type, without its length.
            if isinstance(node, exp.Lag | exp.Lead) and isinstance(values[-1], exp.Literal):
                name, meaning = _char_of(kind for one in contents for kind in one.kinds)
                why = "PostgreSQL may pad the text beside it with blanks"
                raise self._refusal(node, name, meaning, why, advice="rtrim({})")
            return
        # The result has the type of the first value with one, and ELSE comes before THEN ("UNION,
        # CASE, and Related Constructs" in PostgreSQL's manual): char and text convert to each
        # other.
        typed = [one for one, value in zip(contents, values, strict=True) if not is_open(value)]
        otherwise = node.args.get("default") or node.args.get("false")
        if not isinstance(node, exp.Case | exp.If):
            otherwise = None
        else_first = otherwise is not None and not is_open(otherwise)
        if (typed[-1] if else_first else typed[0]).is_char:
            name, meaning = _char_of(kind for one in contents for kind in one.kinds)
            why = "PostgreSQL converts the texts beside it to char(n), too"
            raise self._refusal(node, name, meaning, why, advice="rtrim({})")
        for value, one in zip(values, contents, strict=True):
            if one.is_char:
                self._strip(node, value)

    def _order_matters(self, node: exp.Ordered) -> bool:
        """Tell whether an order affects the result: that of a query does only with a limit."""
        order = node.parent
        sorted_part = order.parent if isinstance(order, exp.Order | exp.Sort) else None
        if isinstance(sorted_part, exp.Query):
            return bool(sorted_part.args.get("limit") or sorted_part.args.get("offset"))
        return True

    def _ordered(self, node: exp.Expr, value: exp.Expr) -> None:
        content = self._origins.of(value)
        for name, meaning in content.kinds:
            self._require(node, name, meaning, order=True, nested=content.nested)
        if content.is_char:
            self._strip(node, value)

    def _grouped(self, node: exp.Expr, value: exp.Expr) -> None:
        """Check a value by which rows are grouped or made distinct."""
        content = self._origins.of(value)
        for name, meaning in content.kinds:
            self._require(node, name, meaning, nested=content.nested)
            if meaning.is_char and not content.is_padded and not content.nested:
                why = "equal values may have more or fewer blanks at their end"
                raise self._refusal(node, name, meaning, why, advice="rtrim({})")
        if len({meaning.base for meaning in content.meanings}) > 1 and not content.nested:
            name, meaning = min(content.kinds, key=lambda kind: kind[0])
            raise self._refusal(node, name, meaning, "it is mixed with other types")

    def _made_distinct(self, node: exp.Distinct) -> list[exp.Expr]:
        if isinstance(node.parent, exp.Select) and not node.args.get("on"):
            return list(node.parent.selects)
        return list(node.expressions)

    def _set_operation(self, node: exp.SetOperation) -> None:
        """Check the columns that a set operation combines."""
        sides = self._origins.of_query(node.left), self._origins.of_query(node.right)
        # A constant in a query that is a set operation itself is a text already.
        items = [
            [] if isinstance(side.unnest(), exp.SetOperation) else _leaf(side).selects
            for side in (node.left, node.right)
        ]
        whole = isinstance(node, exp.Union) and not node.args.get("distinct")
        for place, (one, other) in enumerate(zip(*sides, strict=False)):
            kinds = one.kinds | other.kinds
            if not kinds:
                continue
            name, meaning = min(kinds, key=lambda kind: kind[0])
            for content, item in zip((one, other), items, strict=True):
                if content.kinds:
                    continue
                inner = item[place].unalias() if place < len(item) else None
                if inner is not None and is_open(inner):
                    self._check_other(node, inner, name, meaning)
                elif not is_text(meaning):
                    why = "the other query has a value of another type there"
                    raise self._refusal(node, name, meaning, why)
            if whole:
                continue
            for kind_name, own in kinds:
                self._require(node, kind_name, own, nested=one.nested or other.nested)
            if len(kinds) > 1 and not all(is_text(own) for _, own in kinds):
                raise self._refusal(node, name, meaning, "the two queries have two types there")
            if meaning.is_char and not (one == other and one.is_padded):
                why = "equal values may have more or fewer blanks at their end"
                raise self._refusal(node, name, meaning, why, advice="rtrim({})")

    def _matched(self, node: exp.Expr) -> None:
        """Check LIKE and similar operators: the blanks of a char count, as in PostgreSQL."""
        content = self._origins.of(node.this)
        for name, meaning in content.kinds:
            if meaning.base == "bytea":
                advice = IN_THE_TABLE
                raise self._refusal(node, name, meaning, "its text is matched", advice=advice)
            if not meaning.functions:
                raise self._refusal(node, name, meaning, "its text is matched")
            if is_text(meaning) and not meaning.equal:
                raise self._refusal(node, name, meaning, "its text is matched")
        if self._origins.of(node.expression).is_char:
            self._strip(node, node.expression)

    def _inside(self, node: exp.Expr, *, order: bool = False) -> None:
        """Check a function that compares the elements of lists, or rows."""
        parts = list(node.iter_expressions())
        for part in parts:
            content = self._origins.of(part)
            for name, meaning in content.kinds:
                for constant in parts:
                    if meaning.element is not None and isinstance(constant, exp.Literal):
                        self._check_other(node, constant, name, meaning.element)
                compared: Meaning | None = meaning
                if order and meaning.is_list:  # sorts its elements, and not whole lists
                    element = meaning.element
                    compared = element and replace(element, advice=meaning.advice)
                if compared is not None:
                    self._require(node, name, compared, order=order, nested=True)
                returns_one_value = isinstance(
                    node, exp.ArrayUniqueAgg | exp.Mode | exp.ApproxDistinct
                )
                inner = meaning.element or meaning
                if inner.is_char and not (returns_one_value and content.is_padded):
                    why = "blanks at its end do not count"
                    raise self._refusal(node, name, meaning, why, advice="rtrim({})")

    def _of_elements(self, node: exp.Lambda) -> None:
        """Refuse a lambda over elements whose comparisons would have to be checked inside it."""
        called = node.parent
        for part in called.iter_expressions() if called is not None else ():
            for name, meaning in self._origins.of(part).kinds:
                if not meaning.is_list or meaning.element is not None:
                    why = "comparisons of its elements inside a function are not checked"
                    raise self._refusal(node, name, meaning, why)

    def _joined(self, node: exp.Expr, value: exp.Expr) -> None:
        """Refuse `||` of a value that PostgreSQL does not concatenate as a text."""
        for name, meaning in self._origins.of(value).kinds:
            if is_joined(meaning):
                is_written = meaning.base != "bytea" and not meaning.is_list
                raise self._refusal(
                    node, name, meaning, "PostgreSQL joins the values, and not their texts",
                    advice="cast({} AS string)" if is_written else IN_THE_TABLE,
                )  # fmt: skip

    def _as_text(self, node: exp.Expr, value: exp.Expr, *, refused: bool) -> None:
        """Check a value whose text a function uses.

        `refused`: whether to refuse types for which PostgreSQL has no functions of texts.
        """
        content = self._origins.of(value)
        for name, meaning in content.kinds:
            if refused and not meaning.functions and not content.nested:
                raise self._refusal(node, name, meaning, "a function would use its text")
        if content.is_char and content.nested:
            name, meaning = _char_of(content.kinds)
            why = "blanks at its end are not part of its text"
            raise self._refusal(node, name, meaning, why, advice=f"rtrim({shown(value)})")
        if content.is_char:
            self._strip(node, value)

    def _extreme(self, node: exp.Min | exp.Max) -> None:
        content = self._origins.of(node.this)
        for name, meaning in content.kinds:
            self._require(node, name, meaning, order=True, nested=content.nested)
            if not meaning.is_char or id(node) in self._stripped:
                continue
            place = self._call(node)
            if place is None or not content.is_padded:
                why = "blanks at its end do not count"
                raise self._refusal(node, name, meaning, why, advice="rtrim({})")
            start, end, inner = place
            called = self._text[start : inner[0]] + _stripped(self._text[slice(*inner)])
            self._edits.add((start, end, f"rpad({called}), {meaning.length}, ' ')"))

    def _call(self, node: exp.Expr) -> tuple[int, int, tuple[int, int]] | None:
        """Return the place of a call on a plain column, and the column's; otherwise None."""
        inner = self._place(node.this)
        start = node.meta.get("start")
        if inner is None or start is None or isinstance(node.parent, exp.Filter | exp.Window):
            return None
        before = re.fullmatch(r"\w+\s*\(\s*", self._text[start : inner[0]])
        after = re.match(r"\s*\)", self._text[inner[1] :])
        if before is None or after is None:
            return None
        return start, inner[1] + after.end(), inner

    def _own_key(self) -> None:
        """Check the view's key, which must tell its rows apart."""
        for item in _leaf(self._query).selects:
            if item.alias_or_name.lower() not in self._key:
                continue
            inner = item.unalias()
            if isinstance(inner, exp.Column):
                source = self._origins.source(inner)
                own = self._primary.get(source.name, set()) if isinstance(source, exp.Table) else ()
                if inner.name.lower() in own:
                    continue  # unique in PostgreSQL
            self._grouped(item, inner)

    # Refusals

    def _require(
        self,
        node: exp.Expr,
        name: str,
        meaning: Meaning,
        *,
        order: bool = False,
        nested: bool = False,
    ) -> None:
        """Require that the carried form has the type's equality, or its order.

        Raises ViewError: it does not.
        """
        if order and (not meaning.ordered or (nested and meaning.is_char)):
            collated = is_text(meaning) or meaning.is_char
            why = (
                "it is sorted by a collation that the engines do not have"
                if collated and not nested
                else "its carried form does not sort as its values do"
            )
            raise self._refusal(node, name, meaning, why)
        if not order and not meaning.equal:
            raise self._refusal(
                node, name, meaning, "equal values have several carried forms, or it has no ="
            )

    def _refusal(
        self, node: exp.Expr, name: str, meaning: Meaning, why: str, *, advice: str = ""
    ) -> ViewError:
        column = self._column_of(node, name)
        if not advice and is_advised_as_text(meaning) and _has_text(node):
            advice = IN_THE_TABLE  # as a text, a constant in another form is unequal
        text = (advice or meaning.advice).replace("{}", column)
        return ViewError(
            f'{briefly(node)}: "{column}" is {name}, which the engines cannot compare as '
            f"PostgreSQL does: {why}",
            hint=f"write {text}",
        )

    def _column_of(self, node: exp.Expr, name: str) -> str:
        """Return the name of the column that a message is about."""
        outer = node.parent
        places = [node, *(outer.selects if isinstance(outer, exp.Select) else (outer,))]
        columns = [c for place in places if place is not None for c in place.find_all(exp.Column)]
        for column in columns:
            kinds = {kind for kind, _ in self._origins.of(column).kinds}
            if name in kinds:
                return str(column.name)
            if f"{name}[]" in kinds:
                return briefly(_element(column))
        return name

    # Blanks of a char

    def _strip(self, node: exp.Expr, value: exp.Expr) -> None:  # noqa: C901, PLR0912 - a table
        """Remove the blanks at the end of a value in the query's text.

        Raises ViewError: the place of its column in the text is not known.
        """
        match value:
            case exp.Column() | exp.Literal():
                self._strip_leaf(node, value)
            case exp.Subquery():
                self._strip(node, value.this)
            case exp.SetOperation():
                self._strip_part(node, value.left)
                self._strip_part(node, value.right)
            case exp.Select():
                for item in value.selects[:1]:
                    self._strip(node, item)
            case exp.Case():
                for branch in value.args["ifs"]:
                    self._strip_part(node, branch.args["true"])
                self._strip_part(node, value.args.get("default"))
            case exp.If():
                self._strip_part(node, value.args["true"])
                self._strip_part(node, value.args.get("false"))
            case _ if isinstance(value, BRANCHES):
                for branch in (value.this, *value.expressions):
                    self._strip_part(node, branch)
            case exp.Min() | exp.Max():
                self._stripped.add(id(value))
                self._strip_part(node, value.this)
            case exp.Alias() | exp.Paren() | exp.Lag() | exp.Lead() | exp.First() | exp.AnyValue():
                self._strip_part(node, value.this)
            case _:
                name, meaning = _char_of(self._origins.of(value).kinds)
                why = "blanks at its end do not count"
                raise self._refusal(node, name, meaning, why, advice=f"rtrim({shown(value)})")

    def _strip_part(self, node: exp.Expr, value: exp.Expr | None) -> None:
        counts = self._origins.of(value).is_char or self._origins.is_varchar(value)
        blank = isinstance(value, exp.Literal) and value.is_string and value.name.endswith(" ")
        if value is not None and (counts or blank):
            self._strip(node, value)

    def _strip_leaf(self, node: exp.Expr, value: exp.Column | exp.Literal) -> None:
        place = self._place(value)
        if place is None:
            name, meaning = _char_of(self._origins.of(value).kinds)
            raise self._refusal(
                node, name, meaning, "blanks at its end do not count", advice="rtrim({})"
            )
        start, end = place
        as_text = self._text[start:end]
        if isinstance(value, exp.Literal):
            self._edits.add((start, end, _BLANKS.sub("", as_text)))
        else:
            self._edits.add((start, end, _stripped(as_text)))

    def _place(self, value: exp.Expr) -> tuple[int, int] | None:
        """Return the place of a column or a constant in the text, or None if it is not known."""
        if isinstance(value, exp.Literal):
            start, end = value.meta.get("start"), value.meta.get("end")
            return None if start is None or end is None else (start, end + 1)
        if not isinstance(value, exp.Column) or not isinstance(value.this, exp.Identifier):
            return None
        last = value.this.meta
        if "start" not in last:
            return None
        start, end = last["start"], last["end"] + 1
        if self._text[start:end].strip('`"').lower().replace("``", "`") != value.name.lower():
            return None  # sqlglot has copied it from elsewhere
        before = re.search(r"(?:(?:`(?:[^`]|``)*`|\w+)\s*\.\s*)*$", self._text[:start])
        return (before.start() if before else start), end

    def _check_names(self, edits: Sequence[Edit]) -> None:
        """Refuse an unnamed result column whose derived name would change."""
        query = sqlglot.parse_one(self._text, dialect=SparkSql)
        while isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.left if isinstance(query, exp.SetOperation) else query.this
        for item in query.selects if isinstance(query, exp.Select) else ():
            if isinstance(item, exp.Alias | exp.Column | exp.Star):
                continue
            starts = [n.meta["start"] for n in item.walk() if "start" in n.meta]
            ends = [n.meta["end"] for n in item.walk() if "end" in n.meta]
            if starts and any(min(starts) <= edit[0] <= max(ends) for edit in edits):
                raise ViewError(
                    f"{item.sql(dialect='spark')}: it has no name of its own",
                    hint="give it one: … AS name",
                )


def _is_text_type(kind: exp.DataType) -> bool:
    return bool(kind.is_type(*exp.DataType.TEXT_TYPES))


def _has_text(node: exp.Expr) -> bool:
    """Tell whether an expression has a constant text."""
    return any(isinstance(part, exp.Literal) and part.is_string for part in node.iter_expressions())


def _of_one_type(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of an expression that PostgreSQL converts to one type."""
    values: list[exp.Expr | None]
    match node:
        case exp.Nvl2():
            values = [node.args.get("true"), node.args.get("false")]
        case exp.Lag() | exp.Lead():
            values = [node.this, node.args.get("default")]
        case exp.Array():
            values = list(node.expressions)
        case _:
            values = [*branches(node)]
    return [value for value in values if value is not None]


def _element(column: exp.Column) -> exp.Expr:
    """Return the expression that takes an element out of a list, or else the column itself."""
    outer = column.parent
    by_name = isinstance(outer, exp.Anonymous) and outer.name.lower() in _ELEMENT_OF
    return outer if outer is not None and (by_name or isinstance(outer, exp.Bracket)) else column


def _stripped(text: str) -> str:
    """Return the SQL that removes blanks alone at the end: DuckDB's rtrim removes more."""
    return f"trim(TRAILING ' ' FROM {text})"


def _char_of(kinds: Iterable[tuple[str, Meaning]]) -> tuple[str, Meaning]:
    """Return the char(n) among some types, for messages."""
    chars = sorted((name, meaning.base) for name, meaning in kinds if meaning.is_char)
    name, base = next(iter(chars), ("char", "character"))
    return name, Meaning(base, advice="rtrim({})")


def _leaf(query: exp.Expr) -> exp.Query:
    """Return the first query of a set operation, without brackets."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.left if isinstance(query, exp.SetOperation) else query.this
    assert isinstance(query, exp.Query)  # noqa: S101 - of a parsed query
    return query


def _grouping(node: exp.Group) -> Iterator[exp.Expr]:
    """Yield the values that a query groups by, also in grouping sets."""
    sets = [grouping_set for name in _SETS for grouping_set in node.args.get(name) or ()]
    for part in (*node.expressions, *sets):
        if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple | exp.Paren):
            yield from part.find_all(exp.Column)
        else:
            yield part
