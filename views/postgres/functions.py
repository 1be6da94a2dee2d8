"""Lists PostgreSQL's functions with an equal in Spark's SQL, by the types of their arguments. Pure.

A function that is not listed is refused by name. The codes of arguments:

| code | values |
|---|---|
| a type's name | of that type |
| `int` | an integer of any width |
| `num` | an integer or a numeric |
| `double` | an integer or a float, converted to double precision |
| `text` | a text, a char(n), a constant |
| `shown` | a value that PostgreSQL converts to its text |
| `count`, `place` | a constant number from 0, from 1 |
| `before` | a constant number below 1 |
| `drop` | a constant number below 0, as the place after so many letters |
| `varying` | a text, no char(n) |
| `list`, `first` | a list, the number 1 |
| `ints`, `texts` | a list of integers, of texts |
| `letters` | a constant text |
| `sign` | a constant text that is not empty |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_lowercase, ascii_uppercase

from views.postgres.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    MOST_DIGITS,
    TEXT,
    PgType,
    as_numeric,
    numeric,
)

Result = PgType | Callable[[list[PgType]], PgType]


@dataclass(frozen=True, slots=True)
class Form:
    """One combination of arguments of a function.

    Attributes:
        argument_codes: of its arguments; a last one with `*` stands for any number of them.
        result: the type of its result, or a function that returns it for the arguments' types.
        text: its SQL in Spark, where `{0}` is the first argument, and `{*}` all of them; if it
            depends on the ctype of its arguments, one for each.
    """

    argument_codes: str
    result: Result
    text: str | Mapping[str, str]


def _same(kinds: list[PgType]) -> PgType:
    return kinds[0]


def _whole(kinds: list[PgType]) -> PgType:
    kind = as_numeric(kinds[0])
    return numeric(min(kind.whole + 1, MOST_DIGITS), 0)


def _sum(kinds: list[PgType]) -> PgType:
    kind = as_numeric(kinds[0])
    return PgType("numeric", min(kind.precision + 10, MOST_DIGITS), kind.scale, kind.even)


def _remainder(kinds: list[PgType]) -> PgType:
    one, two = (as_numeric(kind) for kind in kinds)
    scale = max(one.scale, two.scale)
    return numeric(min(min(one.whole, two.whole) + scale, MOST_DIGITS), scale)


_OF_DOUBLES = partial(Form, "double", FLOAT8)
_AS_DOUBLE = "cast({0} AS double)"
_LENGTH = (Form("text", INT4, "length({0})"),)
UPPER = {
    # No capital for ß, where Spark has SS: it is escaped meanwhile, as RFC 6901 escapes.
    "": "replace(replace(upper(replace(replace({0}, '~', '~0'), 'ß', '~1')), '~1', 'ß'), "
    "'~0', '~')",
    "full": "upper(replace({0}, 'ß', 'SS'))",
    "C": f"translate({{0}}, '{ascii_lowercase}', '{ascii_uppercase}')",
}
"""PostgreSQL's `upper`, by the ctype of the text (`Locale.ctype`)."""
LOWER = {
    **dict.fromkeys(("", "full"), "lower({0})"),
    "C": f"translate({{0}}, '{ascii_uppercase}', '{ascii_lowercase}')",
}
"""PostgreSQL's `lower`."""
SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)
_START = "CASE WHEN {1} < 1 THEN 1 ELSE {1} END"
_LENGTH_LEFT = "CASE WHEN {1} < 1 AND {2} >= 0 THEN greatest({1} + {2} - 1, 0) ELSE {2} END"
"""The length of a substring without the letters that would be before the first one."""
_FIRST_LETTERS = (
    "CASE WHEN {1} >= 0 OR {1} IS NULL THEN {1} ELSE greatest(length({0}) + {1}, 0) END)"
)
_YEAR = "CASE WHEN {0} < 0 THEN {0} + 1 ELSE {0} END"
_MONTH = "CASE WHEN {0} = 0 THEN 0 ELSE {1} END"
"""PostgreSQL has no year 0: with one, month 0 makes the engines fail as PostgreSQL does."""
_TRIMS = {"btrim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}


def _rounded(text: str) -> tuple[Form, ...]:
    return (Form("numeric", _whole, text), Form("int", FLOAT8, _AS_DOUBLE))


FUNCTIONS: dict[str, tuple[Form, ...]] = {
    "abs": tuple(Form(kind, _same, "abs({0})") for kind in ("int", "numeric", "float4", "float8")),
    **dict.fromkeys(("ceil", "ceiling"), _rounded("ceil({0})")),
    "floor": _rounded("floor({0})"),
    "trunc": _rounded("CASE WHEN {0} < 0 THEN ceil({0}) ELSE floor({0}) END"),
    "sign": (
        Form("numeric", numeric(1, 0), "cast(sign({0}) AS decimal(1, 0))"),
        Form("int", FLOAT8, "cast(sign({0}) AS double)"),
    ),
    "sqrt": (_OF_DOUBLES("sqrt({0})"),),
    "exp": (_OF_DOUBLES("exp({0})"),),
    "ln": (_OF_DOUBLES("ln({0})"),),
    **dict.fromkeys(("log", "log10"), (_OF_DOUBLES("log10({0})"),)),
    **dict.fromkeys(("power", "pow"), (Form("double double", FLOAT8, "power({0}, {1})"),)),
    "mod": (
        Form("int4 int4", INT4, "({0} % {1})"),
        Form("int8 int8", INT8, "({0} % {1})"),
        Form("num num", _remainder, "({0} % {1})"),
    ),
    **dict.fromkeys(("length", "char_length", "character_length"), _LENGTH),
    "upper": (Form("text", TEXT, UPPER),),
    "lower": (Form("text", TEXT, LOWER),),
    "left": (
        Form("text count", TEXT, "left({0}, {1})"),
        Form("text int4", TEXT, "substring({0}, 1, " + _FIRST_LETTERS),
    ),
    "right": (
        Form("text count", TEXT, "right({0}, {1})"),
        Form("text drop", TEXT, "substring({0}, {1})"),
    ),
    **dict.fromkeys(
        ("substr", "substring"),
        (
            Form("text place", TEXT, "substring({0}, {1})"),
            Form("text before", TEXT, "substring({0}, 1)"),
            Form("text int4", TEXT, f"substring({{0}}, {_START})"),
            Form("text place count", TEXT, "substring({0}, {1}, {2})"),
            Form("text place int4", TEXT, "substring({0}, {1}, {2})"),
            Form("text int4 int4", TEXT, f"substring({{0}}, {_START}, {_LENGTH_LEFT})"),
        ),
    ),
    "reverse": (Form("text", TEXT, "reverse({0})"),),
    "ascii": (Form("text", INT4, "ascii({0})"),),
    "octet_length": (Form("varying", INT4, "octet_length({0})"),),
    **{
        name: (
            Form("text", TEXT, f"trim({word} ' ' FROM {{0}})"),
            Form("text letters", TEXT, f"trim({word} {{1}} FROM {{0}})"),
        )
        for name, word in _TRIMS.items()
    },
    **{
        name: (
            Form("text count", TEXT, f"{name}({{0}}, {{1}}, ' ')"),
            Form("text count letters", TEXT, f"{name}({{0}}, {{1}}, {{2}})"),
        )
        for name in ("lpad", "rpad")
    },
    "repeat": (Form("text count", TEXT, "repeat({0}, {1})"),),
    "replace": (Form("text letters letters", TEXT, "replace({0}, {1}, {2})"),),
    "translate": (Form("text letters letters", TEXT, "translate({0}, {1}, {2})"),),
    "strpos": (Form("text letters", INT4, "instr({0}, {1})"),),
    "cardinality": (Form("list", INT4, "array_size({0})"),),
    **dict.fromkeys(
        ("array_length", "array_upper"), (Form("list first", INT4, "nullif(array_size({0}), 0)"),)
    ),
    "array_to_string": (
        Form("texts letters", TEXT, "array_join({0}, {1})"),
        Form("ints letters", TEXT, "array_join(cast({0} AS array<string>), {1})"),
    ),
    "starts_with": (Form("text text", BOOL, "startswith({0}, {1})"),),
    "md5": (Form("text", TEXT, "md5({0})"),),
    "split_part": (Form("text sign place", TEXT, "split_part({0}, {1}, {2})"),),
    "concat_ws": (Form("text shown*", TEXT, "concat_ws({*})"),),
    "make_date": (
        Form("place int4 int4", DATE, "make_date({0}, {1}, {2})"),
        Form("int4 int4 int4", DATE, f"make_date({_YEAR}, {_MONTH}, {{2}})"),
    ),
}
"""Functions of one row, except those in `SPECIAL`."""
SPECIAL = (
    *(
        "chr",
        "coalesce",
        "concat",
        "date_part",
        "date_trunc",
        "greatest",
        "grouping",
        "least",
        "nullif",
    ),
    *("array_append", "array_cat", "array_position", "array_prepend", "array_remove"),
    *("json_build_object", "jsonb_build_object"),
    *("regexp_like", "regexp_replace", "round", "to_char"),
)
"""Functions of one row with methods of their own in `Expressions`."""
OF_ORDER = ("array_agg", "json_agg", "jsonb_agg", "percentile_cont", "string_agg")
"""Aggregates over values in an order, with methods of their own too."""

AGGREGATES: dict[str, tuple[Form, ...]] = {
    "count": (Form("any", INT8, "count({0})"),),
    "sum": (
        Form("int4", INT8, "sum({0})"),
        Form("int8", _sum, "sum(cast({0} AS decimal(19, 0)))"),
        Form("numeric", _sum, "sum({0})"),
        Form("float8", FLOAT8, "sum({0})"),
    ),
    "avg": (
        Form("float8", FLOAT8, "avg({0})"),
        Form("float4", FLOAT8, "avg(cast({0} AS double))"),
    ),
    **{
        name: tuple(
            Form(kind, _same, f"{name}({{0}})")
            for kind in (
                *("int", "numeric", "float4", "float8", "text", "date", "timestamp", "timestamptz"),
            )
        )
        for name in ("min", "max")
    },
    **dict.fromkeys(("bool_and", "every"), (Form("bool", BOOL, "bool_and({0})"),)),
    "bool_or": (Form("bool", BOOL, "bool_or({0})"),),
    **{
        name: (
            Form("float8", FLOAT8, f"{spark}({{0}})"),
            Form("float4", FLOAT8, f"{spark}(cast({{0}} AS double))"),
        )
        for name, spark in {
            "stddev": "stddev",
            "stddev_samp": "stddev_samp",
            "stddev_pop": "stddev_pop",
            "variance": "variance",
            "var_samp": "var_samp",
            "var_pop": "var_pop",
        }.items()
    },
}
OF_DEFAULTS = ("lag", "lead")
"""Window functions with a default, which has the same type as the value."""
WINDOWS: dict[str, tuple[Form, ...]] = {
    **{name: (Form("", INT8, f"{name}()"),) for name in ("row_number", "rank", "dense_rank")},
    **{name: (Form("", FLOAT8, f"{name}()"),) for name in ("percent_rank", "cume_dist")},
    "ntile": (Form("place", INT4, "ntile({0})"),),
    **{
        name: (
            Form("any", _same, f"{name}({{0}})"),
            Form("any count", _same, f"{name}({{0}}, {{1}})"),
        )
        for name in OF_DEFAULTS
    },
    **{name: (Form("any", _same, f"{name}({{0}})"),) for name in ("first_value", "last_value")},
    "nth_value": (Form("any place", _same, "nth_value({0}, {1})"),),
}
OPERATORS: dict[tuple[str, str, str], tuple[PgType, str]] = {
    ("+", "date", "int4"): (DATE, "date_add({0}, {1})"),
    ("+", "int4", "date"): (DATE, "date_add({1}, {0})"),
    ("-", "date", "int4"): (DATE, "date_sub({0}, {1})"),
    ("-", "date", "date"): (INT4, "datediff({0}, {1})"),
}
"""Operators of dates, by the types of their operands."""
PARTS: dict[str, str] = {
    "year": "(extract(year FROM {0}) - cast({0} < DATE '0001-01-01' AS int))",
    **{name: f"extract({name} FROM {{0}})" for name in ("quarter", "month", "week", "day")},
    **{name: f"extract({name} FROM {{0}})" for name in ("doy", "hour", "minute", "second")},
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "((dayofweek({0}) + 5) % 7 + 1)",
}
"""Parts of dates and timestamps."""
EPOCH = {
    "date": "(cast(datediff({0}, DATE '1970-01-01') AS bigint) * 86400)",
    "timestamp": "(cast(unix_micros(cast({0} AS timestamp)) AS decimal(20, 0)) * 0.000001)",
    "timestamptz": "(cast(unix_micros({0}) AS decimal(20, 0)) * 0.000001)",
}
"""Seconds since 1970, by type."""
OF_MOMENTS = ("hour", "minute", "second")
"""Parts that a date does not have."""
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""Units of `date_trunc` and of intervals."""
PATTERNS = {
    "YYYY": "yyyy",
    "MM": "MM",
    "DD": "dd",
    "HH24": "HH",
    "HH12": "hh",
    "HH": "hh",
    "MI": "mm",
    "SS": "ss",
    "AM": "a",
    "PM": "a",
    "DDD": "DDD",
}
"""Parts of a pattern of `to_char`, to those of `date_format`."""
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def _name(names: Iterable[str], place: str) -> str:
    """Return the SQL of the name at a place, from 1."""
    whens = [f"WHEN {place} = {number} THEN '{name}'" for number, name in enumerate(names, 1)]
    return f"CASE {' '.join(whens)} END"


def _in_cases(long: str, short: str, names: Sequence[str], place: str) -> dict[str, str]:
    """Return the SQL of the patterns of some names: padded to nine letters, not padded, short."""
    forms = {}
    for change in (str, str.upper, str.lower):
        written = [change(name) for name in names]
        forms[change(long)] = _name([name.ljust(9) for name in written], place)
        forms[f"FM{change(long)}"] = _name(written, place)
        forms[change(short)] = _name([name[:3] for name in written], place)
    return forms


WRITTEN = {
    **_in_cases("Month", "Mon", _MONTHS, "extract(month FROM {0})"),
    **_in_cases("Day", "Dy", _DAYS, "dayofweek({0})"),
    "Q": "cast(extract(quarter FROM {0}) AS string)",
    "IW": "lpad(cast(extract(week FROM {0}) AS string), 2, '0')",
    "FMMM": "cast(extract(month FROM {0}) AS string)",
    "FMDD": "cast(extract(day FROM {0}) AS string)",
}
"""Parts of a pattern of `to_char` that `date_format` does not have, to their SQL."""
PLAIN = "write signs, lists as [0-9], one repetition and ends: '[^0-9]+', '^0+'"
"""The hint of a refused pattern."""
INSTEAD = {
    **dict.fromkeys(
        ("sqrt", "exp", "ln", "log", "log10", "power", "pow"), "write x::double precision"
    ),
    **dict.fromkeys(
        ("ceil", "floor", "ceiling"),
        "write it of a numeric with its digits, such as x::numeric(18, 4); a double has no exact "
        "cast to one",
    ),
    "trunc": "write it of a numeric with its digits, such as trunc(x::numeric(18, 4)), or "
    "(trunc(x * 100) / 100)::numeric(18, 2)",
    **dict.fromkeys(("stddev", "stddev_samp", "stddev_pop"), "write x::double precision"),
    **dict.fromkeys(("variance", "var_samp", "var_pop"), "write x::double precision"),
    "sum": "write sum(x::double precision)",
    "format": "write concat(x, ' ', y)",
    "generate_series": "write its rows as VALUES (1), (2), or have them in a table",
    "initcap": "have it as a column that a trigger fills; of one word it is "
    "upper(left(x, 1)) || lower(substr(x, 2))",
    "age": "write x - y of dates, or a part of each by extract",
    "octet_length": "of a char(n) write n, or octet_length(x::text); of bytea it is not known",
    "substr": "write constants, or integers: substr(x, 2, 3)",
    **dict.fromkeys(
        (
            *("now", "clock_timestamp", "random", "current_date", "current_timestamp"),
            *("localtime", "localtimestamp", "gen_random_uuid", "current_user", "nextval"),
        ),
        "its value is another one at each call: have it as a column of the table",
    ),
    "date_trunc": "of a date write date_trunc('month', x::timestamp), "
    "of a timestamptz date_trunc('month', x, 'UTC')",
    "string_agg": "write string_agg(x, ', ' ORDER BY y): a text, a constant, an order",
    "percentile_cont": "write percentile_cont(0.5) WITHIN GROUP (ORDER BY x), of exact numbers",
    **dict.fromkeys(
        ("json_agg", "jsonb_agg"),
        "write json_agg(x ORDER BY y), with an order that determines the row",
    ),
    **dict.fromkeys(
        (
            "to_json",
            "to_jsonb",
            "row_to_json",
            "json_object",
            "json_object_agg",
            "jsonb_object_agg",
        ),
        "write json_build_object('a', x, 'b', y), with constant names",
    ),
    **dict.fromkeys(("json_build_array", "jsonb_build_array"), "write ARRAY[x, y]"),
    "array_agg": "write array_agg(x ORDER BY y), with an order that determines the row",
    **dict.fromkeys(
        ("min", "max"),
        "write x::text for the order of texts",
    ),
    "unnest": "write x = ANY(l), l[1] or l[2:3], or have its elements as rows of a table",
    "jsonb_typeof": "write x ->> 'name' and compare it",
}
"""Hints of refused functions."""
