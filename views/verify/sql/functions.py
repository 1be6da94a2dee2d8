"""The functions of Spark's SQL that are known to mean the same in DuckDB, each with an example.

The translation allows these and no others, with the types in `compared.txt`;
`docs/sql.md` lists both. A test computes each example in both engines over rows with nulls,
negatives, empty texts and the ends of ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

from views.postgres.functions import AGGREGATES, FUNCTIONS, OF_ORDER, PARTS, SPECIAL, WINDOWS
from views.verify.sql.signatures import COMPARED


@dataclass(frozen=True, slots=True)
class Provable:
    """A function, or several that the parser does not tell apart."""

    names: str  # as they are written in Spark's SQL
    parsed: tuple[str, ...]  # names of sqlglot's classes for it
    example: str  # an expression over the columns of `EXAMPLE_COLUMNS`
    only: str = ""  # the condition under which it is known to be the same; empty for always


EXAMPLE_COLUMNS = {
    "a": "int",
    "b": "decimal(10,2)",
    "d": "double",
    "s": "string",
    "j": "string",
    "ts": "timestamp",
    "dt": "date",
    "f": "boolean",
    "l": "array<int>",
}
"""The columns of the examples, with Spark's types; `j` is JSON."""

_WRITTEN_OUT = "not a function of Spark's, which gets it written out: "
_NOT_SPARKS = f"{_WRITTEN_OUT}PostgreSQL's "
GROUPS: dict[str, tuple[Provable, ...]] = {
    "Conditions": (
        Provable("and, or", ("And", "Or"), "f AND a > 0 OR b < 0"),
        Provable("case", ("Case",), "CASE WHEN a > 0 THEN s ELSE 'x' END"),
        Provable("if", ("If",), "if(f, a, 0)"),
        Provable("coalesce, nvl, ifnull", ("Coalesce",), "coalesce(s, '-')"),
        Provable("nullif", ("Nullif",), "nullif(a, 1)"),
        Provable("greatest", ("Greatest",), "greatest(a, 2)"),
        Provable("least", ("Least",), "least(a, 2)"),
        Provable("between", ("Between",), "a BETWEEN 0 AND 2"),
        Provable("in", ("In",), "a IN (1, 2)"),
        Provable("isnan", ("IsNan",), "isnan(d)"),
        Provable("xor", ("Xor",), "a ^ 1"),
    ),
    "Numbers": (
        Provable("abs", ("Abs",), "abs(a)"),
        Provable("+, -, *", ("Add", "Mul"), "a + b * 2"),
        Provable("div, %, mod, pmod", ("IntDiv", "Mod"), "pmod(a, 3)"),
        Provable(
            "significant",
            (),
            "significant(d, 15, 12, 2)",
            "not a function of Spark's: PostgreSQL's `d::numeric(12, 2)`, which goes by the first "
            "15 digits of a double, and 6 of a real",
        ),
        Provable(
            "quotient",
            (),
            "quotient(b, 7, 2, 0, 24)",
            "PostgreSQL's division of decimals, of their places and those of the result at most; "
            "with one more argument rounded",
        ),
        Provable("rint", ("Rint",), "rint(d)"),
        Provable("ceil", ("Ceil",), "ceil(d / 8)", "the result is a bigint: not of NaN"),
        Provable("floor", ("Floor",), "floor(d / 8)", "the result is a bigint: not of NaN"),
        Provable("round", ("Round",), "round(b, 1)", "a constant number of places"),
        Provable("power", ("Pow",), "power(a, 2)", "there is one, and it is a double"),
        Provable("sqrt", ("Sqrt",), "sqrt(abs(a))", "not of a negative number"),
        Provable("exp", ("Exp",), "exp(a / 10)", "the result is a double"),
        Provable("ln", ("Ln",), "ln(abs(a) + 1)", "of a positive number"),
        Provable("log10", ("Log",), "log10(abs(a) + 1)", "of a positive number"),
        Provable("sign, signum", ("Sign",), "sign(a)"),
        Provable("cast, to_timestamp", ("Cast", "TimeStrToTime", ""), "cast(b AS int)"),
        Provable("try_cast", ("TryCast",), "try_cast(s AS int)", "a text as a number"),
    ),
    "Texts": (
        Provable("concat, ||", ("Concat",), "concat(s, '-', a)", "no floats, lists or structs"),
        Provable("concat_ws", ("ConcatWs",), "concat_ws('/', s, a)", "no floats, lists, structs"),
        Provable("contains", ("Contains",), "contains(s, 'a')"),
        Provable("startswith", ("StartsWith",), "startswith(s, 'a')"),
        Provable("endswith", ("EndsWith",), "endswith(s, 'a')"),
        Provable("left", ("Left",), "left(s, 2)", "a constant length from 0"),
        Provable("right", ("Right",), "right(s, 2)", "a constant length from 0"),
        Provable("substring, substr", ("Substring",), "substring(s, 2, 2)", "a start from 1"),
        Provable("reverse", ("Reverse",), "reverse(s)"),
        Provable("ascii", ("Ascii",), "ascii(s)"),
        Provable("octet_length", (), "octet_length(s)"),
        Provable("length, char_length", ("Length",), "length(s)"),
        Provable("lower", ("Lower",), "lower(s)", "no İ, no Greek capital sigma"),
        Provable("upper", ("Upper",), "upper(s)", "no ligatures, no Greek letters with accents"),
        Provable("trim, ltrim, rtrim", ("Trim",), "trim(s)"),
        Provable("lpad, rpad", ("Pad",), "lpad(s, 4, '*')"),
        Provable("repeat", ("Repeat",), "repeat(s, 2)", "a constant number from 0"),
        Provable("replace", ("Replace",), "replace(s, 'a', 'b')"),
        Provable("translate", ("Translate",), "translate(s, 'ab', 'x')"),
        Provable("split", ("RegexpSplit",), "split(s, ',')", "a constant, no pattern"),
        Provable(
            "instr, locate, position",
            ("StrPosition",),
            "instr(s, 'b')",
            "a constant, no start",
        ),
        Provable("levenshtein", ("Levenshtein",), "levenshtein(s, 'abc')", "ASCII"),
        Provable("split_part", ("SplitPart",), "split_part(s, ',', 2)", "a constant, from 1"),
        Provable(
            "regexp_like, rlike",
            ("RegexpLike",),
            r"regexp_like(s, '^[a-z]+\\.[0-9]{2,3}\\z')",
            "a constant that Java and RE2 read alike: no `$`, `.`, `\\\\d`",
        ),
        Provable(
            "regexp_replace",
            ("RegexpReplace",),
            "regexp_replace(s, '[^a-b]+', '')",
            "the same, with one repetition and no alternative",
        ),
        Provable("md5", ("MD5",), "md5(s)"),
        Provable("sha2", ("SHA2",), "sha2(s, 256)", "256 bits"),
    ),
    "JSON": (
        Provable(
            "get_json_object",
            ("JSONExtractScalar", "JSONExtract"),
            "get_json_object(j, '$.k')",
            "a constant path; the value is a text, an integer, true, false or null",
        ),
    ),
    "Dates and times": (
        Provable("date, to_date", ("Date", "TsOrDsToDate"), "date(ts)", "of dates and timestamps"),
        Provable("year", ("Year",), "year(ts)"),
        Provable("quarter", ("Quarter",), "quarter(dt)"),
        Provable("month", ("Month",), "month(dt)"),
        Provable("weekofyear", ("Week", "WeekOfYear"), "weekofyear(dt)"),
        Provable("day, dayofmonth", ("Day", "DayOfMonth"), "day(dt)"),
        Provable("dayofweek", ("DayOfWeek",), "dayofweek(dt)"),
        Provable("dayofyear", ("DayOfYear",), "dayofyear(dt)"),
        Provable("hour", ("Hour",), "hour(ts)"),
        Provable("minute", ("Minute",), "minute(ts)"),
        Provable("second", ("Second",), "second(ts)"),
        Provable("unix_micros", ("UnixMicros",), "unix_micros(ts)", "of timestamps"),
        Provable(
            "extract",
            ("Extract",),
            "extract(year FROM ts)",
            "year, quarter, month, week, day, dow, doy, hour, minute, second",
        ),
        Provable(
            "datediff, date_diff", ("DateDiff",), "datediff(dt, date '2020-01-01')", "no unit"
        ),
        Provable("date_add, date_sub", ("TsOrDsAdd",), "date_add(dt, 1)"),
        Provable("last_day", ("LastDay",), "last_day(dt)"),
        Provable("date_trunc, trunc", ("DateTrunc", "TimestampTrunc"), "date_trunc('month', ts)"),
        Provable("make_date", (), "make_date(2020, 2, 29)"),
        Provable(
            "date_format",
            ("TimeToStr",),
            "date_format(ts, 'EEE, dd MMM yyyy hh:mm a')",
            "of dates and timestamps; y, M, d, E, H, h, m, s, D and a in the pattern",
        ),
    ),
    "Lists and structs": (
        Provable("array", ("Array",), "array(a, 2)"),
        Provable("struct, named_struct", ("Struct", "NamedStruct"), "named_struct('x', a, 'y', s)"),
        Provable("size, array_size", ("ArraySize",), "size(l)", "not of a null"),
        Provable("array_contains", ("ArrayContains",), "array_contains(l, a)"),
        Provable("get", (), "get(l, 0)"),
        Provable(
            "json_element",
            (),
            "json_element('[1, null]', '$[0]')",
            "not a function of Spark's: an element of a list in JSON, as get_json_object, but null "
            "of a null",
        ),
        Provable(
            "has_all",
            (),
            "has_all(l, array(a))",
            _NOT_SPARKS + "`l @> ARRAY[a]`",
        ),
        Provable("arrays_overlap", (), "arrays_overlap(l, array(a))"),
        Provable("list_joined", (), "list_joined(l, array(a))", _NOT_SPARKS + "`l || a`"),
        Provable("list_part", (), "list_part(l, 1, 2)", _NOT_SPARKS + "`l[1:2]`"),
        Provable("list_place", (), "list_place(l, a)", _NOT_SPARKS + "`array_position(l, a)`"),
        Provable("list_without", (), "list_without(l, a)", _NOT_SPARKS + "`array_remove(l, a)`"),
        Provable(
            "label_place",
            (),
            "label_place('ok', array('sad', 'ok'))",
            _WRITTEN_OUT + "the number of an enum's label; of another text an error",
        ),
        Provable("array_join", ("ArrayToString",), "array_join(cast(l AS array<string>), ',')"),
        Provable("element_at, try_element_at", (), "try_element_at(l, 1)"),
        Provable("sort_array", ("ArraySort",), "sort_array(l)"),
    ),
    "Aggregates": (
        Provable("count", ("Count", "Distinct"), "count(DISTINCT s)"),
        Provable("count_if", ("CountIf",), "count_if(a > 0)"),
        Provable("sum", ("Sum",), "sum(b)"),
        Provable("avg", ("Avg",), "avg(b)"),
        Provable("min", ("Min",), "min(s)"),
        Provable("max", ("Max",), "max(ts)"),
        Provable("bool_and", ("LogicalAnd",), "bool_and(f)"),
        Provable("bool_or", ("LogicalOr",), "bool_or(f)"),
        Provable("stddev, stddev_samp", ("Stddev", "StddevSamp"), "stddev(a)"),
        Provable("stddev_pop", ("StddevPop",), "stddev_pop(a)"),
        Provable("variance, var_samp", ("Variance",), "variance(a)"),
        Provable("var_pop", ("VariancePop",), "var_pop(a)"),
        Provable(
            "listagg",
            ("GroupConcat",),
            "listagg(s, ',') WITHIN GROUP (ORDER BY a, s)",
            "a text, a constant, an order that determines the row",
        ),
        Provable("percentile", ("Quantile",), "percentile(cast(a AS double), 0.5)", "of doubles"),
        Provable(
            "collect_list",
            (),
            "collect_list(struct(a, s))",
            "handed on, counted or sorted: its order is open, so it is compared as a bag",
        ),
        Provable("collect_set", (), "collect_set(s)", "as collect_list"),
        Provable(
            "array_agg",
            (),
            "array_agg(s ORDER BY a, s)",
            "with an order that determines the row; PostgreSQL's, with the nulls, and null of no "
            "rows, which Spark gets written out",
        ),
    ),
    "Windows": (
        Provable("row_number", ("RowNumber",), "row_number() OVER (ORDER BY n)"),
        Provable("rank", ("Rank",), "rank() OVER (ORDER BY n)"),
        Provable("dense_rank", ("DenseRank",), "dense_rank() OVER (ORDER BY n)"),
        Provable("percent_rank", ("PercentRank",), "percent_rank() OVER (ORDER BY n)"),
        Provable("cume_dist", ("CumeDist",), "cume_dist() OVER (ORDER BY n)"),
        Provable("ntile", ("Ntile",), "ntile(2) OVER (ORDER BY n)"),
        Provable("lag", ("Lag",), "lag(n) OVER (ORDER BY n)"),
        Provable("lead", ("Lead",), "lead(n) OVER (ORDER BY n)"),
        Provable("first_value", ("FirstValue",), "first_value(n) OVER (ORDER BY n)"),
        Provable("last_value", ("LastValue",), "last_value(n) OVER (ORDER BY n)"),
        Provable("nth_value", ("NthValue",), "nth_value(n, 2) OVER (ORDER BY n)"),
    ),
}
ALLOWED = frozenset(
    name for group in GROUPS.values() for function in group for name in function.parsed
) | {"Anonymous", "Grouping"}
"""Names of sqlglot's classes; functions that it does not know are allowed by name."""
ANONYMOUS = frozenset(
    {"pmod", "make_date", "get", "octet_length", "quotient"}
    | {"significant", "has_all", "arrays_overlap", "json_element"}
    | {"label_place", "list_joined", "list_part", "list_place", "list_without"}
)
NAMES = frozenset(
    name.lower()
    for group in GROUPS.values()
    for function in group
    for name in function.names.split(", ")
) | {"group", "grouping"}  # the first stands in WITHIN GROUP (…)
"""Names of functions as views write them: sqlglot takes some for one that are several in Spark."""


def page() -> str:
    """Return the text of `docs/sql.md`."""
    lines = [_HEAD.replace("{postgres}", _postgres())]
    for group, functions in GROUPS.items():
        lines += [f"## {group}", "", "| function | example | proved when |", "|---|---|---|"]
        for function in functions:
            example = function.example.replace("|", "\\|")
            lines.append(
                f"| {function.names.replace('|', chr(92) + '|')} | `{example}` | {function.only} |"
            )
        lines.append("")
    lines += [_TYPES, "```text", *_by_operation(), "```"]
    return "\n".join(lines)


def _postgres() -> str:
    """Return the section about views in PostgreSQL's SQL, with the names of its functions."""
    tables = {
        "of a row": [*FUNCTIONS, *SPECIAL],
        "aggregates": [*AGGREGATES, *OF_ORDER],
        "windows": [*WINDOWS],
        "parts of a date": [*PARTS, "epoch"],
    }
    listed = (f"| {word} | {', '.join(sorted(names))} |" for word, names in tables.items())
    return "\n".join([_POSTGRES, "| functions | names |", "|---|---|", *listed, ""])


def _by_operation() -> list[str]:
    """Return the operations that were compared, a line each."""
    types_by_name: dict[str, list[str]] = {}
    for operation in sorted(COMPARED):
        name, bracket, types = operation.partition("(")
        types_by_name.setdefault(name, []).append(f"({types}" if bracket else "")
    return [f"{name}{' '.join(filter(None, types))}" for name, types in types_by_name.items()]


_POSTGRES = """## PostgreSQL's SQL

```text
-- key: o_custkey
-- dialect: postgres
SELECT o_custkey, count(*) FILTER (WHERE o_orderstatus = 'O') AS open, max(o_orderdate) AS latest
FROM orders o
WHERE EXISTS (SELECT 1 FROM lineitem l WHERE l.l_orderkey = o.o_orderkey)
GROUP BY 1
```

With the header `-- dialect: postgres` the query means what it means in PostgreSQL: integers divide
to integers, casts round, nulls are last, names fold to small letters and double quotes are names.
Each part of it is written in Spark's SQL by its types, and Spark, the proof and `--follow` work
with that text, which `rebuild-view --plan` shows. What is not known to mean the same is refused
before Spark starts, with its line and column and what to write; nothing is passed on unread. Random
queries over hostile rows are compared with PostgreSQL's own answers
(`tests/integration/test_postgres_dialect.py`). A view
reads other views of its own language alone.

Known: joins with ON or USING and NATURAL ones, FROM ONLY, WITH, subqueries as tables and values,
correlated ones too; EXISTS, NOT EXISTS, IN and NOT IN (as joins, EXISTS also among other
conditions), LATERAL by equal columns, `= ANY` and `<> ALL` of a subquery, ANY and ALL of a list
that is written out (`ARRAY[1, 2]`, `'{1,2}'`), `= ANY`, `<> ALL`, `@>`, `<@` and `&&` of lists of
integers or texts, an element or a part of a list (`l[1]`, `l[2:3]`) and its `||`; UNION, INTERSECT,
EXCEPT, VALUES, DISTINCT and DISTINCT ON, GROUP BY with ROLLUP, CUBE, GROUPING SETS and `grouping`,
or by a primary key alone; FILTER, windows and their frames, `array_agg`, `json_agg`, `string_agg`
and `percentile_cont` with an order, CASE, comparisons of rows, BETWEEN SYMMETRIC, IS DISTINCT FROM,
IS TRUE, LIKE and ILIKE with a constant pattern, `~`, `~*` and `regexp_replace` with a plain one,
`||`, `::`, `->>` of a name or a number from 0, `#>>` of names and numbers, intervals that are added
to dates and moments, `AT TIME ZONE 'UTC'`. Not known yet: WITH RECURSIVE, `unnest`, moments in the
zone of a session, `age`, `initcap`, `?` and `@>` of JSON, its elements from the end.

- **A correlated subquery** that stands for a value has an aggregate, `=` of the whole primary key
  of its one table, as `(SELECT l.name FROM lookup l WHERE l.id = o.lookup_id)`, or equal columns
  with ORDER BY and LIMIT 1: the last two become joins. One that may have several rows, where
  PostgreSQL has an error, is refused.
- **Where integers and numerics meet**, in CASE, coalesce, greatest, UNION, the result is a numeric
  of one scale: equal to PostgreSQL's as a number, and shown as 6.00 where PostgreSQL shows 6.
- Aggregates take DISTINCT; `array_agg` and `string_agg` then take ORDER BY the same value.
  `array_agg` has the nulls, and is null of no rows. A null in a list equals nothing, also in `@>`.
- **A float that is cast to a numeric** goes by its first 15 digits, and 6 of a real:
  `round(d::numeric, 2)` and `d::numeric(9,2)` are PostgreSQL's. NaN and infinities are an error.
- `-> 0` of a single value in jsonb is that value in PostgreSQL: `j ->> 0` is refused at the end of
  a path, `j #>> '{0}'` is not. Where an element of JSON is an object, a list or a number with a
  fraction, the proof ends with an error that names it.
- Groups by a char(n) are PostgreSQL's: blanks at its end do not count.
- **JSON that a query makes** is a nested document, whose values have types, as columns have:
  `json_build_object('a', x)` is a struct, with constant names, `json_agg(x ORDER BY y)` a list,
  null of no rows, and `coalesce(json_agg(…), '[]')` an empty one. Numbers count by their value.
  Sinks write it by their own rules: a numeric in it as a text, as in every document. It is passed
  on or shown, not compared, sorted or read; floats, json and moments with a zone are not put in.
- **Enums have the order of their labels**, in ORDER BY, `<`, min and max, greatest and least:
  capture writes it into the schema. A label that was added since then is an error, until capture
  is started anew; so is a log that an older version has written refused.
- **A quotient of numerics**, and `avg` of integers and numerics, is PostgreSQL's, digit by digit:
  the plan shows it as `quotient(…)`. As a column it has 24 decimal places, or 20 as an average of
  numbers of more than 13 digits before the point, with zeros at its end; one that has more in
  PostgreSQL, such as 1e-9 / 3, is an error that says to round it. `round(a / b, 2)` and
  `(a / b)::numeric(12, 2)` have no such limit. A quotient is divided again once it is rounded.
- A sum has more digits by its type than by its values. Where a product or a comparison has no place
  for them, it is computed with those that have; a value that does not fit is an error.
- Texts are sorted, and compared by `<`, only where PostgreSQL has the order of their code points.
  Under another collation, of a column or of the whole database as in `en_US.utf8`, write
  `x COLLATE "C"`, in ORDER BY, `max`, `greatest` and comparisons; a text made of JSON, a number or
  a date has the database's. Equal texts are equal in all of them.
- `upper`, `lower` and ILIKE follow the collation of their columns: every letter, `upper` leaving ß
  as it is; under ICU ß becomes SS; under C (of a column, or of a whole database: `locale 'C'`, not
  `C.UTF-8`) those of ASCII alone. Columns of different rules in one call are refused, and so are
  Turkish, Azeri, Greek and Lithuanian rules. `x COLLATE "C.utf8"` has every letter.
- A log that an older version has written does not tell the collation of the database, nor rules of
  letters: a table's schema has them from the first change after capture is started anew, or at once
  by `changelog resnapshot TABLE`.
- Floats beyond their range are Infinity where PostgreSQL has an error.
- An order without a limit changes no row, and is left out.
"""

_TYPES = """## Types

What is proved is what tests compare over hostile values, in Spark and DuckDB, some of it in
PostgreSQL too: each operation with the types that it is given, by the names of the parser.
`equal`, `order` and `branches` are the types that stand on the two sides of a comparison or that
CASE, `if` and coalesce choose from; `integer` is each width of it. A query with anything else is
refused, and the refusal names what no test has compared.
"""


_HEAD = """# The SQL of views

A view is one query over captured tables and other views, in Spark's SQL or, under a header
`-- dialect: postgres`, in PostgreSQL's (below). Spark computes its rows, and DuckDB computes them
a second time from the same records: only what is known to mean the same in both is proved.
Anything else is refused before Spark starts, by `rebuild-view --plan` too; `--verify none` builds
it unproved.

Known besides the functions below: joins of every kind, WITH, subqueries, UNION, INTERSECT, EXCEPT,
GROUP BY with ROLLUP, CUBE and GROUPING SETS, HAVING, DISTINCT, windows, FILTER, LIKE without a
backslash, grouping(). Not known: LATERAL VIEW, TABLESAMPLE, EXISTS and NOT EXISTS (LEFT SEMI JOIN
and LEFT ANTI JOIN are). What is random, depends on the clock or takes some row is refused in any
case.

- Division and averages of decimals are exact, as Spark has them. Floats that a view computes are
  compared within a relative 1e-9, since their sums depend on the order; captured ones to the bit.
- Tables without a primary key have `_lsn` and `_sequence`, the place where each row was written:
  lists and windows have their order by them (`docs/reading.md`).
- `collect_list` and `collect_set` leave the order open. So nested documents are compared whatever
  the order of their lists, and the certificate names them; a list that is sorted (`sort_array`)
  is compared in its order.
- What depends on the order of rows is proved where ORDER BY determines the row: `row_number()`,
  `ntile`, `lag`, `lead`, frames by ROWS, LIMIT and OFFSET. It does where it has (with PARTITION BY)
  the primary key of each table, or what determines them: a join by a primary key takes one row of
  its table; after GROUP BY it is the groups, after `row_number() … = 1` the partition, after
  DISTINCT or UNION all columns; the view's own key tells its rows apart, too. It need not where
  rows that are equal by it are equal in all columns that are used. Otherwise the plan says which
  columns to add; `rank()` and `dense_rank()`, sums and frames by RANGE do not ask for it.
- Some values are known to differ between the engines, or to be an error in PostgreSQL where Spark
  gives a value: letters with several capital forms, dates and moments that are infinite in
  functions and in `+` and `-`, days that adding moves out of PostgreSQL's range, years without
  four digits in a pattern, a pattern of LIKE that a column gives and that has a backslash, `floor`
  and casts to decimals of NaN and infinities, `ln` of 0, `sqrt`
  of a negative number, a power beyond a double, a negative length in `substring`, the total of
  ROLLUP, CUBE and an empty grouping set over no rows (PostgreSQL has a row, Spark has none, or by
  its version). A proof that meets one ends with an error that names the column and the expression;
  it does not refute.
- A constant date or moment has a year from 0001 to 9999, and there is such a day. Of 44 BC it is
  `make_date(-43, 3, 15)`; there is no infinite one.
- Equality and order are PostgreSQL's, or the view is refused before Spark starts, whatever
  `--verify` says; the refusal names the column, its type and what to write. Blanks at the end of a
  char(n) do not count: `segment = 'BUILDING'` finds what PostgreSQL finds, functions of texts have
  it without them, and a view that only shows it shows them. Types that are carried as text are
  refused where the text compares otherwise: interval, numeric without a precision or beyond 38
  digits, money, json, jsonb, citext, composite types, ranges of numeric; enums, inet, timetz and
  lists have equality but no order here (`sort_array` sorts a list's elements, by their order).
  Texts have the order of their code points: one under another collation is not sorted, nor compared
  by `<`, and one under a collation that is not deterministic not compared at all. A text is
  compared with no number, date or boolean, nor made one column with it, as PostgreSQL has it; a
  constant in quotes takes the type of what stands beside it, and its form: `t > '12:00'` of a time
  is `t > '12:00:00'`, and what is not known to be a value of that type is refused. `cast(x AS
  string)` is a text from there on, and compared as one: the plan says so where its value would
  compare otherwise. Capture records sorts of types and collations with the schemas since this
  version: where an older one has written them, enums and other types of users are refused until
  capture was started anew, and texts count as sorted by code points. A function in Python is given
  frames and compares by itself.
- `rebuild-view VIEW --plan` says for each view whether it is proved and how a refresh goes, and
  why.

A view may name another view of the project as it names a table: `FROM orders_per_customer`. It
reads that view's query, not what serves of it: all is computed from the log at one frontier,
whether the other view is built or not. A name with a schema (`public.orders`) is always a table; a
view that names itself means the table of its name; a name that both a view and a captured table
have is refused, as are views that read each other in a circle, and views in Python. A change of the
other view is a change of the definition. A refresh computes such a view whole.

Values that a project gives its views stand in `[parameters]` of `changelog.toml` (or, as JSON, in
`CHANGELOG_PARAMETERS`): with `since = 2024-01-01` there, a view says `WHERE ordered >= :since`. A
text, a number, true or false, a date, a moment with or without a zone takes its place as a literal
of SQL: `19.90` is a decimal of two places, as it is in SQL. A parameter without a value is refused.
The values are part of a view's definition, so `--plan` shows them and how they have changed; they
are no place for secrets. A view in Python is given none.

{postgres}
## Where Spark's SQL means something else than PostgreSQL's

The language of a view is Spark's. A test computes some 600 expressions over hostile values in
Spark, in DuckDB and in PostgreSQL, where all three agree; these do not, and `rebuild-view --plan`
says so of each that it finds in a view (letters, bits, and what hangs on a value alone apart):

| expression | in a view | in PostgreSQL |
|---|---|---|
| `a / 2` of integers | a double: 2.5 | an integer: 2; `a div 2` here |
| `cast(2.5 AS int)` | cut off: 2 | rounded: 3 |
| `n / 3` of decimals | six places or more, by the types | as many as the value needs |
| `extract(dow FROM ts)` | 1 (Sunday) to 7 | 0 to 6 |
| `ORDER BY x`, also in OVER | nulls first | nulls last |
| `concat(s, t)` with a null | null | without it |
| `r IN (0.1)`, `r = '0.1'` of a real | compared as doubles | compared as reals |
| `coalesce(r, 0.1)` of a real | a double | a real |
| `cast(n AS float)` | a real | a double |
| `round(d)` of a double | halves away from 0 | halves to the even number |
| `floor(d)`, `ceil(d)` of a double | a bigint, 0 of NaN | a double |
| `sign(d)` of NaN | NaN | 0 |
| `lag(a, 1, n)` | n cut to the type of a | a in the type of n |
| `concat(s, f)` of a boolean | true or false | t or f |
| `s \\|\\| tz` | without the offset | with it |
| `l[0]` | the first element | none: the first is `l[1]` |
| `upper('ß')` | `SS` | `ß` |
| `upper(s)`, `lower(s)`, ILIKE of a text under collation C | every letter | those of ASCII |
| `split('', ',')` | one empty text | no element, by `string_to_array` |
| `m = 'x'`, `coalesce(m, 'x')` of an enum without that label | false; the text | an error |
| `sm + sm`, `r * r` beyond a smallint, a real | an int; Infinity | an error |
| `cast(iv AS string)` of an interval | `P1DT2H` | by IntervalStyle: `1 day 02:00:00` |
| `get_json_object(j, '$[0]')` of JSON that is no list | null | of a text in jsonb: itself |
| `get_json_object(j, '$[0]')` of a list that begins with a null | the text `null` | null |
| `d * 1e308`, beyond a double's range | Infinity | an error |
| `year(dt)` of 44 BC | -43: there is a year 0 | -44 |
| `cast(dt AS string)` of 44 BC, of the year 12024 | `-0043-03-15`, `+12024-01-01` \
| `0044-03-15 BC`, `12024-01-01` |
| `a ^ 1` | exclusive or | power |
| `'a\\nb'`, `X'41'` | a line break; bytes | backslash and n; bits |
| `dt + interval '1' month` | a date | a timestamp |
| `date_trunc('month', ts)` | with a time zone | without: `cast(… AS timestamp_ntz)` |
| `cast(dt AS timestamp)` | with a time zone | without: `cast(dt AS timestamp_ntz)` |
| `cast(tz AS string)` | without its offset | with it |
| `sum(r)` of reals | a double | a real |
| `1e-1` | a double | a numeric |
| `g IN (9007199254740993, d)` with a double | all compared as doubles | each by its type |
| `sqrt(n)`, `ln(n)`, `exp(n)`, `power(n, 2)` of decimals | a double | a numeric |
| `array_agg(s)` | without the nulls; empty of no rows | with them; null of no rows |

This page is written by `make pages` from the table that the verifier goes by; a test computes
each example in both engines. In the examples `a` is an int, `b` a decimal, `d` a double, `s` a
text, `j` JSON, `ts` a timestamp, `dt` a date, `f` a boolean, `l` a list of ints.
"""

if __name__ == "__main__":
    print(page(), end="")
