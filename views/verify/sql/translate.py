"""Translate a view's Spark SQL to DuckDB's with sqlglot, corrected where the engines differ.

Only SQL that is known to mean the same in both is translated. A function that is not on the list, a
cast whose rounding differs, an order that Spark leaves open: each is an `UnverifiableError`, never
a query that happens to run. These differences are corrected:

- `round` of a double: Spark rounds its shortest decimal text half up, DuckDB multiplies;
- `avg` and `/` of decimals: exact in Spark, doubles in DuckDB;
- a float beside another number: a double in Spark (ANSI), a float in DuckDB;
- `+`, `-` and `*` of decimals of up to 18 digits: DuckDB computes in 64 bits, and overflows;
- `trim` removes only blanks in Spark, and all white space in DuckDB;
- a cast to an integer truncates in Spark and rounds in DuckDB;
- a cast of a double to a decimal goes by its shortest text in Spark;
- `dayofweek` starts at 1 in Spark, and `isnan` of a null is false;
- a list without elements is empty in Spark and null in DuckDB; the order of a collected list is
  open in Spark, so such lists are compared as bags (`views.verify.sql.bags`);
- timestamps with a zone: `views.verify.values.types` has them in UTC without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.tokenizer_core import TokenType

from changelog.contract.base.errors import ChangelogError
from changelog.contract.rows.relation import TableName
from views.base.spark_sql import SparkSql, briefly, leaves, shown
from views.verify.sql.bags import LISTS, BagPlaces, Bags, is_in_order
from views.verify.sql.constants import (
    DAY_OF_YEAR,
    MOMENTS,
    as_extraction,
    as_moment,
    is_real,
    no_moment,
    path_of,
    unchecked,
)
from views.verify.sql.ends import (
    FAILING_AT,
    NO_DECIMAL,
    OWN,
    TEXT,
    as_duckdb,
    ended,
    has_total,
    message,
    unless,
    with_total,
)
from views.verify.sql.functions import ALLOWED, ANONYMOUS, NAMES
from views.verify.sql.signatures import is_compared, signatures
from views.verify.sql.sqltypes import (
    FLOATS,
    INTEGERS,
    TableTypes,
    Types,
    as_decimal,
    decimals_of,
    fits,
)
from views.verify.values.names import folded, parsed, reading_name, schema_of
from views.verify.values.types import Type, literal

INFINITE = "an infinite date or moment in a function"
_LAST_DAY = 2_145_042_905
"""The last date of PostgreSQL, in days since 1970; the first is `_FIRST_DAY`."""
_FIRST_DAY = -2_440_588
MACROS = (
    """CREATE OR REPLACE MACRO unscaled(d) AS
    CAST(replace(CAST(d AS VARCHAR), '.', '') AS HUGEINT)""",
    """CREATE OR REPLACE MACRO half_up(n, d) AS
    ((abs(n) * 2 + abs(d)) // (abs(d) * 2)) * sign(n)::HUGEINT * sign(d)::HUGEINT""",
    """CREATE OR REPLACE MACRO digits(q, s) AS
    lpad(abs(q)::VARCHAR, greatest(length(abs(q)::VARCHAR), s + 1)::INTEGER, '0')""",
    """CREATE OR REPLACE MACRO decimal_text(q, s) AS
    CASE WHEN q < 0 THEN '-' ELSE '' END
    || left(digits(q, s), length(digits(q, s)) - s) || '.' || right(digits(q, s), s)""",
    """CREATE OR REPLACE MACRO ten_to(n) AS CAST('1' || repeat('0', n::INTEGER) AS HUGEINT)""",
    # PostgreSQL computes a numeric in groups of four digits: those of a decimal of s places, and
    # the first group of them.
    """CREATE OR REPLACE MACRO groups_of(n, s) AS
    abs(n)::VARCHAR || repeat('0', ((4 - s % 4) % 4)::INTEGER)""",
    """CREATE OR REPLACE MACRO first_group(t) AS
    CAST(left(t, length(t) - 4 * ((length(t) + 3) // 4 - 1)) AS INTEGER)""",
    """CREATE OR REPLACE MACRO places_of_quotient(n, s, d, t) AS
    CASE WHEN n = 0 THEN greatest(s, t) ELSE
    greatest(s, t, 16 - 4 * (((length(groups_of(n, s)) + 3) // 4 - (s + 3) // 4)
    - ((length(groups_of(d, t)) + 3) // 4 - (t + 3) // 4)
    - (first_group(groups_of(n, s)) <= first_group(groups_of(d, t)))::INTEGER)) END""",
    # Null where Spark has an error: calling `error` would make the macro volatile, and DuckDB
    # chooses wrong rows by a volatile value in a correlated subquery that counts. DuckDB binds no
    # lambda in HAVING, which is why values are repeated instead of named once.
    r"""CREATE OR REPLACE MACRO with_point(q, s) AS
    regexp_replace(regexp_replace(q::VARCHAR, '^-?', '\0' || repeat('0', s + 1)),
    '([0-9]{' || s || '})$', '.\1')""",
    """CREATE OR REPLACE MACRO rounded_quotient(n, s, d, t, most, rounded, places) AS
    with_point(CASE WHEN places > most THEN CASE WHEN rounded IS NOT NULL THEN 0 END
    WHEN rounded IS NULL OR places <= rounded
    THEN half_up(n * ten_to(places + t - s), d) * ten_to(coalesce(rounded, most) - places)
    ELSE half_up(half_up(n * ten_to(places + t - s), d), ten_to(places - rounded)) END,
    coalesce(rounded, most))""",
    """CREATE OR REPLACE MACRO quotient_text(a, b, s, t, most, rounded) AS
    rounded_quotient(unscaled(a), s, nullif(unscaled(b), 0), t, most, rounded,
    places_of_quotient(unscaled(a), s, nullif(unscaled(b), 0), t))""",
    f"""CREATE OR REPLACE MACRO finite(t, whole) AS
    CASE WHEN isinf(t) THEN error('{OWN}' || whole || ': {INFINITE}') ELSE t END""",
    # Beyond 32 bits of days Spark wraps round to another day; PostgreSQL has an error.
    f"""CREATE OR REPLACE MACRO moved_day(t, n, whole) AS
    CASE WHEN isinf(t) THEN error('{OWN}' || whole || ': {INFINITE}')
    WHEN (t - DATE '1970-01-01')::BIGINT + n::BIGINT NOT BETWEEN {_FIRST_DAY} AND {_LAST_DAY}
    THEN error('{OWN}' || whole || ': a date that is out of range once days are added')
    ELSE t + n::INTEGER END""",
    # Spark counts the years before year 1 as 0, -1, …; a plus sign precedes those after 9999.
    """CREATE OR REPLACE MACRO far_text(t) AS
    CASE WHEN year(t) < 0 THEN '-' WHEN year(t) > 9999 THEN '+' ELSE '' END
    || lpad(abs(year(t))::VARCHAR, greatest(length(abs(year(t))::VARCHAR), 4)::INTEGER, '0')
    || '-' || lpad(month(t)::VARCHAR, 2, '0') || '-' || lpad(day(t)::VARCHAR, 2, '0')
    || coalesce(' ' || nullif(regexp_extract(CAST(t AS VARCHAR),
    '[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?'), ''), '')""",
    f"""CREATE OR REPLACE MACRO moment_text(t, whole) AS
    CASE WHEN isinf(t) THEN error('{OWN}' || whole || ': {INFINITE}')
    WHEN year(t) BETWEEN 1 AND 9999 THEN CAST(t AS VARCHAR) ELSE far_text(t) END""",
    # If an object has a name twice, Spark takes the first value, PostgreSQL the last.
    f"""CREATE OR REPLACE MACRO json_once(j, p, whole) AS CASE WHEN json_valid(j) THEN
    CASE WHEN list_unique(json_keys(j, p)) < len(json_keys(j, p))
    THEN error('{OWN}' || whole || ': a name that stands twice in an object in JSON')
    ELSE j END ELSE j END""",
    # Spark formats other numbers and nested values by rules of its own.
    f"""CREATE OR REPLACE MACRO json_scalar(j, p, of_null, whole) AS CASE WHEN json_valid(j) THEN
    CASE json_type(j, p)
    WHEN 'NULL' THEN of_null
    WHEN 'DOUBLE' THEN error('{OWN}' || whole || ' is a number with a fraction in JSON')
    WHEN 'OBJECT' THEN error('{OWN}' || whole || ' is an object in JSON')
    WHEN 'ARRAY' THEN error('{OWN}' || whole || ' is a list in JSON')
    ELSE json_extract_string(j, p) END END""",
)
"""Functions that translated queries call; the database must have them first."""
_FAILING = frozenset({"error"}) | {
    text.split("MACRO ")[1].partition("(")[0] for text in MACROS if "error(" in text
}
"""Functions that may end a proof, which DuckDB therefore takes for volatile."""
_NO_FIELDS = (
    "it has no fields here; write its text, or have the fields as columns of the table in "
    "PostgreSQL"
)
_INTERVAL = (
    "an interval is no value of a view: write what it is added to, such as dt + interval '1' day"
)
_OTHER_NAMES = {"every": "bool_and", "some": "bool_or"}
_TRIED = "texts are tried as integers, decimals and doubles alone"
_ELEMENT = '"element of this list"'
"""The name of an element in a lambda, which hides no column."""
_OF_LISTS = {
    "label_place": "CAST(nullif(list_position({1}, {0}), 0) AS INTEGER)",
    "list_joined": "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} "
    "ELSE list_concat({0}, {1}) END",
    "list_part": "CASE WHEN {1} IS NOT NULL AND {2} IS NOT NULL "
    "THEN list_slice({0}, greatest({1}, 1), greatest({2}, 0)) END",
    "list_place": "CAST(nullif(CASE WHEN {1} IS NULL THEN list_position(list_transform({0}, "
    f"lambda {_ELEMENT}: {_ELEMENT} IS NULL), TRUE) "
    "ELSE list_position({0}, {1}) END, 0) AS INTEGER)",
    "list_without": f"list_filter({{0}}, lambda {_ELEMENT}: {_ELEMENT} IS DISTINCT FROM {{1}})",
}
"""Calls of lists, as DuckDB has them. `label_place` is null where Spark has an error."""
_MINUS_ONE = exp.Neg(this=exp.Literal.number(1))
_WRITTEN = "written"
"""The key in a window's `meta` under which a copy of the view's own form is kept."""

_OF_TEXTS = frozenset(
    {
        *("Contains", "EndsWith", "ILike", "Left", "Length", "Levenshtein", "Like", "Lower", "Pad"),
        *("RegexpSplit", "Repeat", "Replace", "Right", "StartsWith", "StrPosition", "Substring"),
        *("Ascii", "Reverse"),
        *("Translate", "Trim", "Upper"),
    }
)
"""Operations on texts, which PostgreSQL does not have for a number or a date."""
_SEVERAL_ROWS = (
    *(exp.AggFunc, exp.Group, exp.Distinct, exp.Window, exp.Join, exp.Lateral, exp.Subquery),
    *(exp.With, exp.UDTF, exp.Explode, exp.SetOperation, exp.Order, exp.Limit, exp.Offset),
)
_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Between, exp.In, exp.Nullif),
)
_OF_ONE_TYPE = (
    *_COMPARISONS,
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod),
    *(exp.Coalesce, exp.Greatest, exp.Least, exp.If, exp.Case),
)
_OF_ONE_DECIMAL = (
    *_COMPARISONS,
    *(exp.Coalesce, exp.Greatest, exp.Least, exp.If, exp.Case),
)
_PLAIN = (exp.Column, exp.Literal, exp.Alias, exp.Query)
_OF_MOMENTS = (
    *(exp.Year, exp.Quarter, exp.Month, exp.Week, exp.WeekOfYear, exp.Day, exp.DayOfMonth),
    *(exp.DayOfWeek, exp.DayOfYear, exp.Hour, exp.Minute, exp.Second, exp.Extract, exp.DateDiff),
    *(exp.TsOrDsAdd, exp.LastDay, exp.DateTrunc, exp.TimestampTrunc, exp.TimeToStr, exp.Date),
    *(exp.TsOrDsToDate, exp.Concat, exp.ConcatWs, exp.DPipe, exp.UnixMicros),
)
_MOVED = (*_OF_MOMENTS, exp.Add, exp.Sub)
_JOINED = (exp.Concat, exp.ConcatWs, exp.DPipe)
"""Functions for which Spark takes PostgreSQL's infinity for a day of the year 5881580."""
_BLANK = r"[\x00-\x20\x7f]"
"""Characters that Spark removes from both ends of a text before it reads a number
(`UTF8String.trimAll`)."""
_INTEGER = "[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_ODD_DOUBLE = (
    rf"(?i){_BLANK}*[+-]?(inf|infinity|nan|{_NUMBER}[fd]|0x[0-9a-f.]+p[+-]?[0-9]+[fd]?){_BLANK}*"
)
"""Texts that only Java reads as a double."""
_INTEGER_NAMES = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
_NOT_ASCII = r"[^\x00-\x7f]"
_ODD_CAPITALS = (
    r"[\x{149}\x{19b}\x{1f0}\x{264}\x{390}\x{3b0}\x{587}\x{1c8a}\x{1e96}-\x{1e9a}\x{1f50}-\x{1fff}"
    r"\x{a7cd}-\x{a7db}\x{fb00}-\x{fb17}\x{10d70}-\x{10d85}\x{16ebb}-\x{16ed3}]"
)
"""Letters whose capital form differs between the engines; a test tries every letter."""
_ODD_SMALL = r"[\x{130}\x{3a3}\x{1c89}\x{a7cb}-\x{a7dc}\x{10d50}-\x{10d65}\x{16ea0}-\x{16eb8}]"
"""The same for small forms; that of the Greek sigma depends on the next letter."""
_BITS = {"smallint": 16, "int": 32, "bigint": 64}
_WRITTEN_FORMS = {
    **dict.fromkeys(_BITS, "[+-]?[0-9]+"),
    **dict.fromkeys(FLOATS, rf"{_NUMBER}|-?Infinity|NaN"),
    "boolean": "(?i)true|false",
}
"""Forms of quoted constants beside values of these types."""
_MOST_DIGITS = 38
_EXACT_DIGITS = 15
"""Digits of a decimal that a double holds, so that one division gives the nearest double."""
_IN_64_BITS = 18
"""Digits of a decimal that DuckDB computes with in 64 bits."""
_UNITS = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"),
    *("microsecond", "yyyy", "yy", "mon", "mm", "dd"),
)
_PARTS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "dow",
    "dayofweek",
    "doy",
    "hour",
    "minute",
    "second",
)
"""The parts of a date or timestamp that `extract` returns in both engines."""
_ZONED = {exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ}


class UnverifiableError(ChangelogError):
    """A view cannot be recomputed independently, so it is neither proved nor refuted."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A query for DuckDB."""

    sql: str  # its text
    names: tuple[str, ...]  # names of its columns
    bare: frozenset[str]  # columns that are unchanged captured columns, or structs of these
    groups: bool  # whether equal values are grouped somewhere, so that 0.0 may stand for -0.0
    by_row: bool = False  # whether each row comes from one row of one table
    # columns with lists in an order that Spark leaves open, and where these lists are
    bags: Mapping[str, BagPlaces] = field(default_factory=dict)


def translate(sql: str, tables: Mapping[TableName, Mapping[str, Type]]) -> Translation:
    """Translate a view's query.

    `sql`: Spark SQL, with or without its header of comments. `tables`: the captured tables and the
    types of their columns. The translation reads them under the names of
    `views.verify.values.names`.
    """
    types = {
        reading_name(table): {folded(column): kind for column, kind in columns.items()}
        for table, columns in tables.items()
    }
    try:
        query = qualified(sql, tables, types)
        _check_names(sql)
        inferred = Types(query, types)
        selects = query.selects if isinstance(query, exp.Query) else []
        rows = zip(
            *(leaf.selects for leaf in leaves(query) if isinstance(leaf, exp.Query)), strict=False
        )
        bare = frozenset(
            items[0].alias_or_name for items in rows if all(map(inferred.is_bare, items))
        )
        groups = query.find(exp.Group, exp.Distinct, exp.SetOperation) is not None
        by_row = isinstance(query, exp.Select) and query.find(*_SEVERAL_ROWS) is None
        all_bags = Bags(query)
        _check_query(query, inferred, all_bags)
        bags = {
            item.alias_or_name: bag for item in selects if (bag := all_bags.of(item)) is not None
        }
        _correct(query, inferred)
        text = query.sql(dialect="duckdb", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (SqlglotError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise UnverifiableError(f"cannot verify this SQL: sqlglot: {first}") from error
    names = tuple(item.alias_or_name for item in selects)
    return Translation(text, names, bare, groups, by_row, bags)


def columns_read(
    sql: str, tables: Mapping[TableName, Mapping[str, Type]]
) -> dict[TableName, frozenset[str]]:
    """Return the columns of each table that a view's query reads, by their folded names.

    Raises UnverifiableError: it is not a query.
    """
    types = {
        reading_name(table): {folded(column): kind for column, kind in columns.items()}
        for table, columns in tables.items()
    }
    read: dict[str, set[str]] = {}
    for scope in traverse_scope(qualified(sql, tables, types)):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table):
                read.setdefault(source.name, set()).add(folded(column.name))
    return {table: frozenset(read.get(reading_name(table), ())) for table in tables}


def qualified(sql: str, tables: Collection[TableName], types: TableTypes) -> exp.Expr:
    """Return a query with qualified columns and annotated types."""
    query = parsed(sql, tables).transform(_without_zone)
    if not isinstance(query, exp.Query):
        raise UnverifiableError("cannot verify this SQL: it is not a query")
    schema = schema_of(
        {
            table: {name: _sqlglot_type(kind) for name, kind in columns.items()}
            for table, columns in types.items()
        }
    )
    return annotate_types(
        qualify(query, schema=schema, dialect="spark"), schema=schema, dialect="spark"
    )


def _without_zone(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.DataType) and node.this in _ZONED:
        return exp.DataType.build("TIMESTAMP", dialect="duckdb")
    return node


def _sqlglot_type(kind: Type) -> str:
    if kind.name == "array":
        return f"array<{_sqlglot_type(kind.fields[0][1])}>"
    if kind.name == "timestamp":
        return "timestamp_ntz"
    return f"decimal({kind.precision},{kind.scale})" if kind.name == "decimal" else kind.name


def _refuse(node: exp.Expr, why: str) -> UnverifiableError:
    return UnverifiableError(f"cannot verify this SQL: {briefly(node)}: {why}")


def _check_names(sql: str) -> None:
    """Refuse functions whose name in the view's text is not a known one.

    sqlglot reads functions of several databases as one class, also those that Spark does not have,
    or that mean something else there.
    """
    tokens = sqlglot.tokenize(sql, read=SparkSql)
    unknown = [
        token.text
        for token, after in pairwise(tokens)
        if token.token_type is TokenType.VAR and after.token_type is TokenType.L_PAREN
        if token.text.lower() not in NAMES
    ]
    if not unknown:
        return
    parsed_again = sqlglot.parse_one(sql, read=SparkSql)
    aliases = {
        alias.name.lower()
        for alias in parsed_again.find_all(exp.TableAlias)
        if alias.args.get("columns")
    }
    for name in unknown:
        if name.lower() not in aliases:  # else it is `AS name(column, …)`
            other = _OTHER_NAMES.get(name.lower())
            hint = "" if other is None else f": write {other}"
            raise UnverifiableError(f"cannot verify this SQL: function {name} is not known{hint}")


def _check_query(query: exp.Expr, types: Types, bags: Bags) -> None:
    """Refuse each part that is not known to mean the same in both engines."""
    _check_meaning(query, types, bags)
    for node, signature in signatures(query, types):
        if not is_compared(signature):
            raise _refuse(node, f"no test has compared {signature}{_instead(node, signature)}")


def _instead(node: exp.Expr, signature: str) -> str:
    """Return the part of a refusal that suggests another form of an operation, if one is known."""
    if signature == "Sub(date, date)":
        return f": write datediff({shown(node.this)}, {shown(node.args['expression'])})"
    name, _, others = signature.partition("(")
    kind = re.match("integer|decimal|boolean|date", others)
    if name in _OF_TEXTS and kind and is_compared(f"{name}(string{others[kind.end() :]}"):
        return f": write cast({shown(node.this)} AS string)"
    return ""


def _check_meaning(  # noqa: C901, PLR0912 - one for each form
    query: exp.Expr, types: Types, bags: Bags
) -> None:
    for node in query.walk():
        if (why := bags.misread(node)) is not None:
            raise _refuse(node, why)
        if isinstance(node, _OF_ONE_DECIMAL) and not all(
            fits(map(types.of, parts)) for parts in _operands(node)
        ):
            raise _refuse(node, "no decimal holds all of its values: cast them to one")
        if isinstance(node, _OF_ONE_DECIMAL):
            for text, kinds in _texts_beside(node, types.of, MOMENTS):
                if as_moment(text.name, _widest_moment(kinds)) is None:
                    raise _refuse(node, no_moment(text.name, _widest_moment(kinds)))
        if isinstance(node, _COMPARISONS):
            for text, kinds in _texts_beside(node, types.of, {"decimal"}):
                digits = max(kind.precision for kind in kinds)
                if digits > _EXACT_DIGITS or not _is_short(text.name):
                    why = f"Spark compares it as a double: write {text.name} without quotes"
                    raise _refuse(node, why)
        _check_written(node, types)
        _check_place(node, types)
        match node:
            case exp.Anonymous() if node.name.lower() not in ANONYMOUS:
                raise _refuse(node, f"function {node.name} is not known")
            case exp.Func() if not isinstance(node, exp.Connector):
                if isinstance(node, LISTS):
                    continue
                if type(node).__name__ not in ALLOWED:
                    raise _refuse(node, f"function {type(node).__name__} is not checked")
                _check_function(node, types)
            case exp.Like() | exp.ILike() if "\\" in node.expression.name:
                raise _refuse(node, "the two engines escape differently")
            case exp.In() if node.args.get("query") is not None and not _is_filter(node):
                raise _refuse(node, "Spark has false where it is null: write it in WHERE")
            case exp.DPipe():
                for part in (node.left, node.right):
                    _check_text(node, types.of(part))
            case exp.AtTimeZone() | exp.FromTimeZone():
                raise _refuse(node, "each engine has rules of time zones of its own")
            case exp.RegexpILike() | exp.Lateral() | exp.TableSample():
                raise _refuse(node, "the two engines differ here")
            case exp.SetOperation():
                _check_columns(node, types)
            case exp.Group() if node.args.get("rollup") or node.args.get("cube"):
                word = "ROLLUP" if node.args.get("rollup") else "CUBE"
                listed = ", ".join(map(shown, node.expressions))
                raise _refuse(node, f"write GROUP BY {word} ({listed})")
            case exp.Mul() | exp.Add() | exp.Sub() if _is_unknown_decimal(node, types):
                wider = max(node.left, node.right, key=lambda side: _digits(types.of(side)))
                why = "the result has more digits than a decimal, or its precision is not known"
                cast = f"cast({shown(wider)} AS decimal(16, 4))"
                raise _refuse(node, f"{why}: write a side with fewer digits, such as {cast}")


def _check_place(node: exp.Expr, types: Types) -> None:
    """Refuse a value in a place where its type has no meaning."""
    for part in _conditions(node):
        kind = types.of(part)
        if kind is not None and kind.name not in {"boolean", "void"}:
            raise _refuse(part, f"it is {kind.name}, and stands where a condition should")
    match node:
        case exp.Any() if not isinstance(node.parent, exp.Binary):
            value = shown(node.this.unnest())
            raise _refuse(node, f"function any is not known: write bool_or({value})")
        case exp.Dot() if (of := types.of(node.this)) is not None and of.name != "struct":
            raise _refuse(node, f"{shown(node.this)} is carried as {of.name}: {_NO_FIELDS}")
        case exp.Interval() if not isinstance(_around(node), exp.Add | exp.Sub | exp.Cast):
            if node.find_ancestor(exp.WindowSpec) is None:
                raise _refuse(node, _INTERVAL)
        case _:
            return


def _check_written(node: exp.Expr, types: Types) -> None:
    """Refuse a quoted constant that is not a value of the type that it is compared with."""
    if not isinstance(node, _OF_ONE_DECIMAL):
        return
    for text, kinds in _texts_beside(node, types.of, _WRITTEN_FORMS.keys()):
        for kind in kinds:
            if not _is_written(text.name, kind.name):
                why = f"{text.name!r} is no {kind.name} that PostgreSQL and both engines read alike"
                raise _refuse(node, f"{why}: write one without quotes")


def _is_written(text: str, name: str) -> bool:
    """Tell whether PostgreSQL and both engines read a quoted constant as a value of a type."""
    if re.fullmatch(_WRITTEN_FORMS[name], text) is None:
        return False
    return name not in _BITS or -(1 << _BITS[name] - 1) <= int(text) < 1 << _BITS[name] - 1


def _conditions(node: exp.Expr) -> list[exp.Expr]:
    """Return the parts of an expression or a clause that have to be true or false."""
    match node:
        case exp.And() | exp.Or():
            return [node.left, node.right]
        case exp.Where() | exp.Having() | exp.Qualify() | exp.Not():
            return [node.this]
        case exp.If() if not (isinstance(node.parent, exp.Case) and node.parent.this):
            return [node.this]
        case exp.Join() if (on := node.args.get("on")) is not None:
            return [on]
        case _:
            return []


def _around(node: exp.Expr) -> exp.Expr | None:
    """Return the expression around a part, without parentheses."""
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    return around


def _is_filter(node: exp.In) -> bool:
    """Tell whether an IN only filters rows, so that null and false mean the same."""
    around = node.parent
    if isinstance(around, exp.Not):
        around = around.parent
    while isinstance(around, exp.And | exp.Or | exp.Paren):
        around = around.parent
    return isinstance(around, exp.Where | exp.Having | exp.Join | exp.Qualify)


def _check_columns(node: exp.SetOperation, types: Types) -> None:
    """Refuse a column that is a float on one side only, where Spark makes it a double."""
    for one, two in zip(node.left.selects, node.right.selects, strict=False):
        kinds = [types.of(one), types.of(two)]
        names = {None if kind is None else kind.name for kind in kinds} - {"void"}
        if "float" in names and names != {"float"}:
            column = one.alias_or_name
            why = f"cast column {column} to double on both sides"
            raise _refuse(node, f"{why}, or to a decimal if {column} is of the view's key")


def _digits(kind: Type | None) -> int:
    """Return the number of digits of a number, for a comparison of two."""
    decimal = None if kind is None else as_decimal(kind)
    return 0 if decimal is None else decimal.precision


def _is_unknown_decimal(node: exp.Binary, types: Types) -> bool:
    kinds = [types.of(node.left), types.of(node.right)]
    decimal = any(kind is not None and kind.name == "decimal" for kind in kinds)
    return decimal and types.of(node) is None


def _check_function(node: exp.Func, types: Types) -> None:
    if (why := unchecked(node)) is not None:
        raise _refuse(node, why)
    match node:
        case exp.Concat() | exp.ConcatWs():
            for part in node.expressions:
                _check_text(node, types.of(part))
        case exp.Cast() if (digits := _digits_of(node.to)) > _MOST_DIGITS:
            why = f"no decimal of the engines has {digits} digits: {_MOST_DIGITS} are the most"
            raise _refuse(node, f"{why}; cast to double for the first {_EXACT_DIGITS}")
        case exp.Cast() if node.to.is_type(*exp.DataType.TEXT_TYPES):
            _check_text(node, types.of(node.this))
        case exp.Extract() if node.name.lower() not in _PARTS:
            raise _refuse(node, f"known are {', '.join(_PARTS)}; other parts have functions")
        case exp.DateTrunc() | exp.TimestampTrunc() if node.text("unit").lower() not in _UNITS:
            raise _refuse(node, f"known are {', '.join(_UNITS)}: Spark has null for other units")
        case exp.Round() if decimals_of(node) is None or types.of(node.this) is None:
            raise _refuse(node, "its number of places, or the type of its argument, is not known")
        case exp.Round() if (places := decimals_of(node) or 0) < 0:
            kind = types.of(node.this)
            whole = kind.precision - kind.scale if kind and kind.name == "decimal" else None
            if (whole is not None and -places >= whole) or (kind and kind.name in FLOATS):
                one, by = shown(node.this), 10**-places
                why = "the engines do not round alike so far before the point"
                narrow = kind is None or kind.precision <= _IN_64_BITS
                hint = f": write round({one} / {by}) * {by}" if narrow else ""
                raise _refuse(node, why + hint)
        case exp.TryCast() if node.args.get("safe") and _is_untried(node, types):
            raise _refuse(node, f"{_TRIED}: leave the other rows out with WHERE, and write cast")
        case _:
            return


def _is_untried(node: exp.TryCast, types: Types) -> bool:
    kind = types.of(node)
    tried = kind is not None and kind.name in {*INTEGERS, "decimal", "double"}
    inner = types.of(node.this)
    return not tried or (inner is not None and inner.name != "string")


def _digits_of(kind: exp.DataType) -> int:
    """Return the number of digits of a decimal; 0 for another type."""
    sizes = kind.expressions if kind.is_type(exp.DataType.Type.DECIMAL) else []
    return int(sizes[0].name) if sizes else 0


def _check_text(node: exp.Expr, kind: Type | None) -> None:
    if kind is None or kind.name in FLOATS | {"binary", "array", "struct", "map"}:
        raise _refuse(node, "the two engines write such a value differently")


def _correct(query: exp.Expr, types: Types) -> None:
    """Replace, innermost first, the operations that the engines compute differently."""
    nodes = list(query.walk(bfs=True))
    kinds = {id(node): types.of(node) for node in nodes}
    for node in nodes:
        if isinstance(node, exp.Window):
            node.meta[_WRITTEN] = node.copy()
        elif isinstance(node, FAILING_AT) or (
            isinstance(node, _MOVED) and any(_is_moment(kinds[id(part)]) for part in _parts(node))
        ):
            within = isinstance(node, exp.TsOrDsToDate) and isinstance(node.parent, _OF_MOMENTS)
            node.meta[TEXT] = shown(node.parent if within and node.parent else node)
        elif (
            isinstance(node, exp.Select)
            and node.args.get("group")
            and has_total(node.args["group"])
            and not node.args.get("having")
        ):
            node.set("having", exp.Having(this=exp.true()))
    nodes = list(query.walk(bfs=True))
    for node in nodes[::-1]:
        new = _corrected(node, kinds)
        if new is not None:
            node.replace(new)
            nodes.append(new)  # kept alive, so that no later node takes its id
            kinds[id(new)] = kinds.get(id(node))
    for window in query.find_all(exp.Window):
        if _WRITTEN in window.meta:
            _check_window(window, window.meta[_WRITTEN])


def _check_window(node: exp.Window, written: exp.Window) -> None:
    """Refuse partitions and orders that may end the proof: DuckDB accepts no volatile ones.

    `node`: the translated window, in its query. `written`: the window in the view's own form.
    """
    query = node.find_ancestor(exp.Select)
    group = None if query is None else query.args.get("group")
    keys = [] if group is None else list(group.walk())
    for part, own in zip(_placing(node), _placing(written), strict=True):
        calls = part.find_all(exp.Anonymous)
        if any(
            call.name.lower() in _FAILING and not _is_before(call, part, keys) for call in calls
        ):
            text = shown(own)
            why = f"DuckDB places no rows in a window by {text}, which may end a proof"
            raise _refuse(
                written,
                f"{why}: compute it in a subquery (SELECT *, {text} AS x FROM …), "
                "and write x in OVER",
            )


def _is_before(call: exp.Expr, part: exp.Expr, keys: list[exp.Expr]) -> bool:
    """Tell whether a part's call is computed before the window is: in an aggregate or a key."""
    node: exp.Expr | None = call
    while node is not None:
        if isinstance(node, exp.AggFunc) or node in keys:
            return True
        node = None if node is part else node.parent
    return False


def _placing(node: exp.Window) -> list[exp.Expr]:
    """Return the expressions of a window's PARTITION BY and ORDER BY."""
    order = node.args.get("order")
    sorts = [] if order is None else [sort.this for sort in order.expressions]
    return [*(node.args.get("partition_by") or ()), *sorts]


def _trimmed(node: exp.Trim) -> exp.Expr | None:
    characters = node.expression
    if characters is None:
        return exp.Trim(**{**node.args, "expression": exp.Literal.string(" ")})
    is_blank = isinstance(characters, exp.Literal) and characters.name == " "
    is_at_end = str(node.args.get("position")).upper() == "TRAILING"
    if not (is_blank and is_at_end and isinstance(node.this, exp.Column)):
        return None
    value = node.this.sql("duckdb")  # rtrim is slow, and most texts end in no blank
    return as_duckdb(f"CASE WHEN suffix({value}, ' ') THEN rtrim({value}, ' ') ELSE {value} END")


def _corrected(  # noqa: C901, PLR0911, PLR0912 - one for each correction
    node: exp.Expr, kinds: Mapping[int, Type | None]
) -> exp.Expr | None:
    kind = kinds.get(id(node))
    if isinstance(node, _OF_ONE_TYPE):
        _as_doubles(node, kinds)
    if isinstance(node, _OF_ONE_DECIMAL):
        _as_decimals(node, kinds)
        for text, beside in _texts_beside(node, lambda part: kinds.get(id(part)), MOMENTS):
            moment = as_moment(text.name, _widest_moment(beside))
            text.replace(exp.Literal.string(moment or text.name))
    if isinstance(node, _COMPARISONS):
        for text, _ in _texts_beside(node, lambda part: kinds.get(id(part)), {"decimal"}):
            text.replace(exp.Literal.number(text.name))  # else DuckDB rounds it to the decimal
    if isinstance(node, _OF_MOMENTS):
        for part in _parts(node):
            if _is_moment(kinds.get(id(part))):
                name = "moment_text" if isinstance(node, _JOINED) else "finite"
                part.replace(_named(name, node, part))
    if isinstance(node, _JOINED) or _is_text_cast(node):
        _with_leading_zeros(node, kinds)
    match node:
        case exp.Add() | exp.Sub() | exp.Mul() if kind is not None and kind.name == "decimal":
            return _in_128_bits(node, kinds)
        case exp.Add() | exp.Sub() if _is_moment(kinds.get(id(node.this))):
            return _moved(node, kind)
        case exp.Having() if (group := node.parent) is not None:
            return with_total(group, node) if isinstance(group, exp.Select) else None
        case exp.Trim():
            return _trimmed(node)
        case exp.Extract():
            return _part(node)
        case exp.Sign() if (inner := kinds.get(id(node.this))) and inner.name in FLOATS:
            value = node.this.sql("duckdb")  # NaN and -0.0 are their own signs
            return as_duckdb(
                f"CASE WHEN isnan({value}) OR {value} = 0 THEN {value} ELSE sign({value}) END"
            )
        case exp.TimeToStr():
            pattern = node.args["format"].name
            node.set("format", exp.Literal.string(pattern.replace(DAY_OF_YEAR, "%j")))
            if "%Y" not in pattern:
                return None
            wrong = f"year({node.this.sql('duckdb')}) NOT BETWEEN 1000 AND 9999"
            return unless(wrong, node, "is of a year without four digits")
        case exp.CountIf() if not isinstance(node.this, exp.Distinct):  # null of no rows in DuckDB
            return as_duckdb(f"count(CASE WHEN {node.this.sql('duckdb')} THEN 1 END)")
        case exp.Rint() | exp.Quantile():
            last = node.args.get("quantile", exp.Literal.number(0)).sql("duckdb")
            name = "round_even" if isinstance(node, exp.Rint) else "quantile_cont"
            return as_duckdb(f"{name}({node.this.sql('duckdb')}, {last})")
        case exp.Avg():
            return _average(node, kind, kinds)
        case exp.Div():
            return _quotient(node, kind, kinds)
        case exp.Round():
            return _rounded(node, kinds.get(id(node.this)))
        case exp.TryCast() if node.args.get("safe"):
            return _tried(node, kinds.get(id(node.this)))
        case exp.Cast():
            return _cast(node, kinds.get(id(node.this)))
        case exp.ArrayAgg() | exp.ArrayUniqueAgg() | exp.Filter() | exp.ArrayToString():
            return _of_list(node)
        case exp.IsNan():
            return exp.Coalesce(this=node.copy(), expressions=[exp.false()])
        case exp.RegexpSplit():
            return exp.func("string_split", node.this.copy(), node.expression.copy())
        case exp.JSONExtract() | exp.JSONExtractScalar():
            return _of_json(node)
        case exp.TsOrDsAdd() if _is_day(node):
            return _day_added(node)
        case exp.TsOrDsAdd():
            return exp.cast(node.copy(), "DATE")
        case exp.Pad() if (fill := node.args.get("fill_pattern")) is not None:
            return _padded(node, fill)
        case exp.Bracket():
            return _element(node.this, node.expressions[0], node.args.get("offset") or 0)
        case exp.Anonymous():
            return _called(node, kind)
        case exp.Reverse() | exp.ArrayContains():
            return _by_lists(node)
        case exp.DayOfWeek():
            return exp.Paren(this=exp.Add(this=node.copy(), expression=exp.Literal.number(1)))
        case exp.Upper() | exp.Lower() | exp.Levenshtein():
            return _of_known_letters(node)
        case _:
            return ended(node, kinds)


def _by_lists(node: exp.Reverse | exp.ArrayContains) -> exp.Expr:
    """Translate `reverse` of a text and `array_contains`.

    DuckDB's own `reverse` keeps letters and their accents together; its `list_contains` is false
    where Spark has null: if the value is not found, but the list has a null.
    """
    one = node.this.sql("duckdb")
    if isinstance(node, exp.Reverse):
        letters = f"regexp_extract_all({one}, '[\\s\\S]')"
        return as_duckdb(f"array_to_string(list_reverse({letters}), '')")
    value = node.expression.sql("duckdb")
    return as_duckdb(
        f"CASE WHEN {one} IS NULL OR {value} IS NULL THEN NULL "
        f"WHEN list_contains({one}, {value}) THEN TRUE "
        f"WHEN len({one}) > list_aggregate({one}, 'count') THEN NULL ELSE FALSE END"
    )


def _of_json(
    node: exp.JSONExtract | exp.JSONExtractScalar, *, has_null_text: bool = True
) -> exp.Expr:
    path, document = path_of(node), node.this.sql("duckdb")
    whole = _whole(node).sql("duckdb")
    for step in re.finditer(r'\."', path):
        within = literal(path[: step.start()])
        document = f"json_once({document}, {within}, {whole})"
    # Of a null among a list's elements, Spark's get_json_object has the text null.
    of_null = "'null'" if has_null_text and path.endswith("]") else "NULL"
    return as_duckdb(f"json_scalar({document}, {literal(path)}, {of_null}, {whole})")


def _is_text_cast(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES)


def _with_leading_zeros(node: exp.Expr, kinds: Mapping[int, Type | None]) -> None:
    """Give decimals without a digit before the point one more, before they become texts.

    DuckDB writes a DECIMAL(2, 2) as `.25`, Spark and PostgreSQL as `0.25`.
    """
    for part in (node.this, node.args.get("expression"), *node.expressions):
        kind = kinds.get(id(part)) if isinstance(part, exp.Expr) else None
        if kind is None or kind.name != "decimal" or kind.precision != kind.scale:
            continue
        if kind.precision == _MOST_DIGITS:
            raise _refuse(node, f"a decimal with {_MOST_DIGITS} places is written differently")
        wider = exp.DataType.build(f"DECIMAL({kind.precision + 1}, {kind.scale})")
        part.replace(exp.Cast(this=part.copy(), to=wider))  # exp.cast leaves a decimal as it is


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a function or an operator."""
    parts = (node.this, node.args.get("expression"), *node.expressions)
    return [part for part in parts if isinstance(part, exp.Expr)]


def _named(macro: str, node: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Return the call of a macro for a part, with the text of the expression for its message."""
    return exp.func(macro, part.copy(), _whole(node), dialect="duckdb")


def _whole(node: exp.Expr) -> exp.Literal:
    """Return the text of an expression as its author wrote it, for messages."""
    return exp.Literal.string(node.meta.get(TEXT) or "")


def _is_moment(kind: Type | None) -> bool:
    return kind is not None and kind.name in MOMENTS


def _is_day(node: exp.TsOrDsAdd) -> bool:
    return node.text("unit").upper() in {"", "DAY"}


def _moved(node: exp.Add | exp.Sub, kind: Type | None) -> exp.Expr | None:
    """Translate adding days or an interval to a date or timestamp, or subtracting them."""
    moment, by = node.this.sql("duckdb"), node.expression.sql("duckdb")
    sign = "-" if isinstance(node, exp.Sub) else "+"
    if isinstance(node.expression, exp.Interval):
        kept = _named("finite", node, node.this).sql("duckdb")
        moved = as_duckdb(f"{kept} {sign} {by}")  # DuckDB makes a timestamp of a date
        return exp.cast(moved, "DATE") if kind is not None and kind.name == "date" else moved
    return as_duckdb(f"moved_day({moment}, {sign}({by})::BIGINT, {_whole(node).sql('duckdb')})")


def _day_added(node: exp.TsOrDsAdd) -> exp.Expr:
    """Translate adding days to a date, or subtracting them."""
    days, sign = node.expression, ""
    if isinstance(days, exp.Mul) and days.expression == _MINUS_ONE:  # date_sub
        days, sign = days.this, "-"
    by = f"{sign}({days.sql('duckdb')})::BIGINT"
    day = f"CAST({node.this.sql('duckdb')} AS DATE)"
    return as_duckdb(f"moved_day({day}, {by}, {_whole(node).sql('duckdb')})")


def _padded(node: exp.Pad, fill: exp.Expr) -> exp.Expr | None:
    """Translate padding; with an empty fill Spark only cuts the text."""
    if isinstance(fill, exp.Literal) and fill.name:
        return None
    text, length = node.this.sql("duckdb"), f"({node.expression.sql('duckdb')})"
    return as_duckdb(
        f"CASE WHEN {fill.sql('duckdb')} = '' "
        f"THEN left({text}, CASE WHEN {length} < 0 THEN 0 ELSE {length} END) "
        f"ELSE {node.sql('duckdb')} END"
    )


def _element(of: exp.Expr, place: exp.Expr, first: int) -> exp.Expr:
    """Return an element of a list whose first element has the number `first`; DuckDB's has 1."""
    number = f"({place.sql('duckdb')})"
    if first == 0:
        number = f"(CASE WHEN {number} >= 0 THEN {number}::BIGINT + 1 END)"
    return as_duckdb(f"({of.sql('duckdb')})[{number}]")


def _texts_beside(
    node: exp.Expr, type_of: Callable[[exp.Expr], Type | None], names: Collection[str]
) -> list[tuple[exp.Literal, list[Type]]]:
    """Return the constant texts next to values of some types, each with these types."""
    pairs: list[tuple[exp.Literal, list[Type]]] = []
    for parts in _operands(node):
        kinds = [kind for part in parts if (kind := type_of(part)) and kind.name in names]
        texts = (part for part in parts if isinstance(part, exp.Literal) and part.is_string)
        pairs += [(text, kinds) for text in texts if kinds]
    return pairs


def _widest_moment(kinds: Collection[Type]) -> str:
    names = {kind.name for kind in kinds}
    return next(name for name in ("timestamp", "timestamp_ntz", "date") if name in names)


def _is_short(text: str) -> bool:
    """Tell whether a text is a number with so few digits that no two become the same double."""
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) is not None and (
        sum(map(str.isdigit, text)) <= _EXACT_DIGITS
    )


def _as_doubles(node: exp.Expr, kinds: Mapping[int, Type | None]) -> None:
    """Make the operands doubles where a float meets a number of another type.

    Spark's ANSI rules convert both to a double (`AnsiTypeCoercion`), DuckDB both to a float.
    """
    for parts in _operands(node):
        part_kinds = [kinds.get(id(part)) for part in parts]
        names = {kind.name for kind in part_kinds if kind is not None and kind.name != "void"}
        if not names & FLOATS or names == {"float"}:
            continue
        if None in part_kinds:
            raise _refuse(node, "the type of one side is not known, and the other is a float")
        for part, kind in zip(parts, part_kinds, strict=True):
            if kind is not None and kind.name == "float":
                part.replace(exp.cast(part.copy(), "DOUBLE"))
            elif kind is not None and kind.name == "decimal" and kind.precision > _EXACT_DIGITS:
                # DuckDB divides by a power of ten, which rounds twice.
                part.replace(exp.cast(exp.cast(part.copy(), "VARCHAR"), "DOUBLE"))


def _as_decimals(node: exp.Expr, kinds: Mapping[int, Type | None]) -> None:
    """Cast computed decimals that are combined to Spark's types.

    DuckDB's types may have more digits, and then it cuts decimal places of the other operand.
    """
    for parts in _operands(node):
        for part in parts if len(parts) > 1 else ():
            kind = kinds.get(id(part))
            if kind is None or kind.name != "decimal" or isinstance(part, _PLAIN):
                continue
            size = f"DECIMAL({kind.precision}, {kind.scale})"
            part.replace(exp.cast(part.copy(), size, dialect="duckdb"))


def _operands(node: exp.Expr) -> Iterator[list[exp.Expr]]:
    """Yield the parts of an expression that an engine converts to one type."""
    match node:
        case exp.Case():
            ifs, default = node.args["ifs"], node.args.get("default")
            yield [*(branch.args["true"] for branch in ifs), *([default] if default else [])]
            if node.this is not None:
                yield [node.this, *(branch.this for branch in ifs)]
        case exp.If():
            yield [part for name in ("true", "false") if (part := node.args.get(name))]
        case exp.Between():
            yield [node.this, node.args["low"], node.args["high"]]
        case exp.In() if node.args.get("query") is not None:
            yield [node.this, *node.args["query"].this.selects]
        case exp.Nullif() | exp.Binary():
            yield [node.this, node.expression]
        case _:
            yield [node.this, *node.expressions]


def _in_128_bits(node: exp.Binary, kinds: Mapping[int, Type | None]) -> exp.Expr | None:
    """Widen the left side, so that DuckDB computes in 128 bits.

    It uses 64 bits where both sides fit them, "to avoid large slowdowns", and fails on a larger
    result, which Spark computes.
    """
    left_kind = kinds.get(id(node.left))
    wide = None if left_kind is None else as_decimal(left_kind)
    if wide is None or wide.precision > _IN_64_BITS:
        return None
    new = node.copy()
    kind = f"DECIMAL({_IN_64_BITS + 1}, {wide.scale})"
    new.left.replace(exp.cast(new.left.copy(), kind, dialect="duckdb"))
    return new


def _part(node: exp.Extract) -> exp.Expr | None:
    name = node.name.lower()
    moment = node.expression.sql("duckdb")
    match name:
        case "dow" | "dayofweek":
            return as_duckdb(f"(extract(dow FROM {moment}) + 1)")
        case "second":
            micros = f"CAST(extract(microsecond FROM CAST({moment} AS TIMESTAMP)) AS HUGEINT)"
            return as_duckdb(f"CAST(decimal_text({micros}, 6) AS DECIMAL(8, 6))")
        case _:
            return None


def _tried(node: exp.TryCast, inner: Type | None) -> exp.Expr:
    """Translate `try_cast` of a text: the engines accept different forms."""
    name = node.to.sql("duckdb")
    kind = "BIGINT" if name in _INTEGER_NAMES else name.partition("(")[0]
    shape = {"BIGINT": _INTEGER, "DECIMAL": _NUMBER, "DOUBLE": _NUMBER}.get(kind)
    if shape is None or inner is None or inner.name != "string":
        raise _refuse(node, _TRIED)
    text = node.this.sql("duckdb")
    bare = f"regexp_replace({text}, {literal(_BLANK)}, '', 'g')"
    return as_duckdb(
        f"CASE WHEN regexp_full_match({text}, {literal(f'{_BLANK}*{shape}{_BLANK}*')}) "
        f"THEN TRY_CAST(ltrim({bare}, '+') AS {name}) "
        + (
            f"WHEN regexp_full_match({text}, {literal(_ODD_DOUBLE)}) "
            f"THEN error({message(node, 'is of a text that only one engine takes for a double')}) "
            if kind == "DOUBLE"
            else ""
        )
        + "END"
    )


def _of_known_letters(node: exp.Func) -> exp.Expr:
    """End the proof at letters that the engines convert differently: a mismatch would be false."""
    text = node.this.sql("duckdb")
    match node:
        case exp.Upper():
            odd, value = _ODD_CAPITALS, f"upper(replace({text}, 'ß', 'SS'))"
        case exp.Lower():
            odd, value = _ODD_SMALL, f"lower({text})"
        case _:
            odd, value = _NOT_ASCII, node.sql("duckdb")
            text = f"concat({text}, {node.expression.sql('duckdb')})"
    wrong = f"regexp_matches({text}, {literal(odd)})"
    return unless(wrong, node, "has a letter that the engines write differently", as_duckdb(value))


def _of_list(node: exp.Expr) -> exp.Expr | None:
    """Replace DuckDB's nulls: of a list of no rows, of the text of a list without elements."""
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(node, exp.ArrayToString):
        listed = node.this.sql("duckdb")
        text = f"coalesce({node.sql('duckdb')}, '')"
        return as_duckdb(f"CASE WHEN {listed} IS NOT NULL THEN {text} END")
    if is_in_order(inner):
        inner.set("nulls_excluded", False)
        return None
    is_filtered = node is inner and isinstance(node.parent, exp.Filter)
    if is_filtered or not isinstance(inner, LISTS):
        return None
    return exp.Coalesce(this=node.copy(), expressions=[exp.Array()])


def _scaled(numerator: str, denominator: str, kind: Type) -> exp.Expr:
    text = f"decimal_text(half_up({numerator}, {denominator}), {kind.scale})"
    return as_duckdb(f"CAST({text} AS DECIMAL({kind.precision}, {kind.scale}))")


def _average(node: exp.Avg, kind: Type | None, kinds: Mapping[int, Type | None]) -> exp.Expr | None:
    if kind is None:
        raise _refuse(node, "the type of its argument is not known")
    if kind.name != "decimal":
        return None
    inner = kinds.get(id(node.this))
    if inner is None or isinstance(node.parent, exp.Window | exp.Filter):
        raise _refuse(node, "an average of decimals is verified without DISTINCT, OVER, FILTER")
    text = node.this.sql("duckdb")
    up = 10 ** (kind.scale - inner.scale)
    return _scaled(f"unscaled(sum({text})) * {up}::HUGEINT", f"count({text})::HUGEINT", kind)


def _quotient(
    node: exp.Div, kind: Type | None, kinds: Mapping[int, Type | None]
) -> exp.Expr | None:
    if kind is None:
        raise _refuse(node, "the types of its two sides are not known")
    if kind.name != "decimal":
        return None
    sides = [
        as_decimal(side_kind) for n in (node.left, node.right) if (side_kind := kinds.get(id(n)))
    ]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:  # noqa: PLR2004 - two sides
        raise _refuse(node, "the types of its two sides are not known")
    up = 10 ** (kind.scale + sides[1].scale - sides[0].scale)
    left, right = node.left.sql("duckdb"), node.right.sql("duckdb")
    return _scaled(f"unscaled({left}) * {up}::HUGEINT", f"unscaled({right})", kind)


def _called(  # noqa: PLR0911 - one for each function
    node: exp.Anonymous, kind: Type | None
) -> exp.Expr | None:
    """Translate a function for which sqlglot has no class."""
    parts = [part.sql("duckdb") for part in node.expressions]
    match node.name.lower():
        case "get":
            return _element(node.expressions[0], node.expressions[1], 0)
        case "octet_length":
            return as_duckdb(f"strlen({parts[0]})")
        case "significant" if kind is not None:
            value = f"({parts[0]})::DOUBLE"
            written = f"printf('%.{int(parts[1]) - 1}e', {value})"
            decimal = as_duckdb(f"CAST({written} AS DECIMAL({kind.precision}, {kind.scale}))")
            return unless(f"NOT isfinite({value})", node, NO_DECIMAL, decimal)
        case "json_element":
            extraction = as_extraction(node)
            extraction.meta[TEXT] = node.sql("spark")
            return _of_json(extraction, has_null_text=False)
        case name if name in _OF_LISTS:
            return as_duckdb(_OF_LISTS[name].format(*parts))
        case "has_all":
            one, two = parts
            whole = f"len({two}) = list_aggregate({two}, 'count')"  # no null is in a list
            return as_duckdb(
                f"CASE WHEN {one} IS NOT NULL THEN list_has_all({one}, {two}) AND {whole} END"
            )
        case "arrays_overlap":
            one, two = parts
            nulls = " OR ".join(f"len({side}) > list_aggregate({side}, 'count')" for side in parts)
            return as_duckdb(
                f"CASE WHEN list_has_any({one}, {two}) THEN TRUE "
                f"WHEN {one} IS NULL OR {two} IS NULL THEN NULL "
                f"WHEN len({one}) > 0 AND len({two}) > 0 AND ({nulls}) THEN NULL ELSE FALSE END"
            )
        case "quotient" if kind is not None:
            called = f"quotient_text({', '.join([*parts, 'NULL'][:6])})"
            return as_duckdb(f"CAST({called} AS DECIMAL({kind.precision}, {kind.scale}))")
        case "pmod":
            rest = f"(({parts[0]}) % ({parts[1]}))"
            two = f"({parts[1]})"
            return as_duckdb(f"CASE WHEN {rest} < 0 THEN ({rest} + {two}) % {two} ELSE {rest} END")
        case _:
            return None


def _rounded(node: exp.Round, inner: Type | None) -> exp.Expr | None:
    places = decimals_of(node) or 0
    if inner is None or inner.name not in FLOATS:
        return None
    if not 0 <= places <= 18:  # noqa: PLR2004 - the macro's scale
        raise _refuse(node, "its number of places is out of the range that is checked")
    text = node.this.sql("duckdb")
    value = f"({text})::DOUBLE"
    decimal = f"CAST(CAST({value} AS VARCHAR) AS DECIMAL(38, {places}))::DOUBLE"
    return as_duckdb(
        f"CASE WHEN isfinite({value}) AND abs({value}) < 1e16 THEN {decimal} ELSE {value} END"
    )


def _cast(  # noqa: PLR0911 - one for each type
    node: exp.Cast, inner: Type | None
) -> exp.Expr | None:
    target = node.to.sql("spark").lower()
    name = target.partition("(")[0]
    if node.to.is_type(*exp.DataType.TEXT_TYPES) and _is_moment(inner):
        return _named("moment_text", node, node.this)
    if name in MOMENTS and _is_moment(inner):
        new = node.copy()
        new.this.replace(_named("finite", node, node.this))
        return new
    if name in MOMENTS and inner is not None and inner.name == "string":
        # Spark accepts more forms than DuckDB, and applies a zone where DuckDB ignores it.
        text, shape = node.this.sql("duckdb"), literal(MOMENTS[name])
        if isinstance(node.this, exp.Literal) and not (
            re.fullmatch(MOMENTS[name], node.this.name) and is_real(node.this.name)
        ):
            raise _refuse(node, no_moment(node.this.name, name))
        wrong = f"NOT regexp_full_match({text}, {shape})"
        return unless(wrong, node, f"is of a text that is no plain {name}")
    if name in INTEGERS and inner is None:
        raise _refuse(node, "the type of its argument is not known")
    if name in INTEGERS and inner is not None and inner.name in FLOATS | {"decimal"}:
        return as_duckdb(f"CAST(trunc({node.this.sql('duckdb')}) AS {node.to.sql('duckdb')})")
    if name == "float" and inner is not None and inner.name == "double":
        # Beyond a float's range Spark has an infinity, and DuckDB an error.
        value, kind = node.this.sql("duckdb"), node.to.sql("duckdb")
        infinite = f"CASE WHEN {value} > 0 THEN 'inf' WHEN {value} < 0 THEN '-inf' END"
        return as_duckdb(f"coalesce(TRY_CAST({value} AS {kind}), CAST({infinite} AS {kind}))")
    if name == "decimal":
        if inner is None:
            raise _refuse(node, "the type of its argument is not known")
        if inner.name in FLOATS:
            # Spark first converts a real to a double, whose text has all digits.
            value = f"({node.this.sql('duckdb')})::DOUBLE"
            decimal = as_duckdb(f"CAST(CAST({value} AS VARCHAR) AS {node.to.sql('duckdb')})")
            return unless(f"NOT isfinite({value})", node, NO_DECIMAL, decimal)
    return None
