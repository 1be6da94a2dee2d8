"""Random expressions and queries in PostgreSQL's SQL, over tables with hostile rows."""

from __future__ import annotations

import random

DDL = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s');
ALTER TYPE mood ADD VALUE 'Aa' BEFORE 'sad';
ALTER TYPE mood ADD VALUE 'ä "b"' BEFORE 'ok';
CREATE TABLE t (id int PRIMARY KEY, a int, g bigint, sm smallint, r real, d double precision,
    n numeric(10,3), m numeric(15,2), s text, v varchar(10), c char(5), dt date, ts timestamp,
    tz timestamptz, f boolean, j jsonb, "Up" int, l int[], w text[], h json,
    e mood);
CREATE TABLE u (id int PRIMARY KEY, t int, x int, n numeric(12,2), s text, c char(5), dt date);
"""
_T = """
1|5|4611686018427387904|3|0.1|0.1|1.250|1.50|O'Brien|x |ab|2024-02-29|2024-02-29 13:05:07.123456|\
2024-02-29 13:05:07.123456+00|t|{"k": "v", "a": {"b": 7}}|1
2|-7|-5|-3|-1.5|-1.5|9999999.999|-2.55| x |ab|a|1999-12-31|1969-12-31 23:00:00|\
1969-12-31 23:00:00+00|f|{"k": null}|2
3|2147483647|9223372036854775807|32767|NaN|NaN|-9999999.999|9999999999999.99|||\
|0001-01-01|2000-01-01 00:00:00|2000-03-26 01:30:00+00|\\N|\\N|\\N
4|-2147483648|-9223372036854775808|-32768|Infinity|-Infinity|0.005|0.00|a%_|12|B |9999-12-31|\
9999-12-31 23:59:59.999999|2024-10-27 00:30:00+00|t|{"a": {"0": "z"}, "e": "y"}|0
5|0|0|0|-0|-0|0.000|-0.01|\u00e4\u00e9\U0001f600|Z|\u00e4|2020-02-29|2024-12-30 00:00:00.5|\
1900-01-01 00:00:00+00|f|{"k": true}|-1
6|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N|\\N
7|12|12|12|0.5|0.5|2.500|2.50|12|12|12|2021-01-03|2021-01-03 00:00:01|2021-01-03 00:00:01+00|t|\
{"k": 12}|1
8|3|3|3|2.5|2.5|-2.500|-0.50|a|a |a|2024-02-29|2020-12-28 00:00:00|2020-12-28 00:00:00+00|t|\
{"k": "v"}|3
9|4|4|4|16777216|0.30000000000000004|0.100|0.05|ab|ab|ab|2024-03-31|2024-03-31 12:00:00|\
2024-03-31 12:00:00+00|f|\
{"a": {"b": "x"}, "e": [5, "y", null, [1, "q"], {"m": 3}], "user-id": "u"}|2
"""
_U = """
1|1|5|1.25|O'Brien|ab|2024-02-29
2|1|\\N|2.50|a|a|1999-12-31
3|2|5|-2.50|\\N|\\N|\\N
4|\\N|0|0.00||B|2024-02-29
5|5|3|0.05|a |ab|2020-02-29
6|5|3|\\N|ab|a|\\N
7|8|12|10.00|a|12|2021-01-03
8|99|-7|9999999999.99|zz|zz|2030-01-01
"""

_LISTS = {
    1: ([5, 1, None], ["ab", "x"]),
    2: ([], []),
    3: (None, ["a", None]),
    4: ([None], [""]),
    5: ([0, 0], ["12"]),
    7: ([12], [None]),
    8: ([1, 2], ["a", "ab", "b"]),
    9: ([4, 5], ["ab"]),
}
_MOODS = {1: "sad", 2: "ok", 3: 'ä "b"', 4: "it's", 5: "Aa", 7: "sad", 8: "it's", 9: 'ä "b"'}
_DOCUMENTS = {
    1: '[1, "x", null, true]',
    2: '"x"',
    4: "[]",
    5: '{"0": "z"}',
    7: "12",
    8: '{"x": [[1, 2], {"a": "b", "c.d": "e"}]}',
    9: "null",
}


def fill(cursor) -> None:
    """Put the rows into the tables."""
    for table, rows in (("t", _T), ("u", _U)):
        for line in rows.replace("|\\\n", "|").strip().splitlines():
            fields = [None if field == "\\N" else field for field in line.split("|")]
            marks = ", ".join(["%s"] * len(fields))
            cursor.execute(f"INSERT INTO {table} VALUES ({marks})", fields)
    for key, (numbers, words) in _LISTS.items():
        cursor.execute("UPDATE t SET l = %s, w = %s WHERE id = %s", (numbers, words, key))
    for key, mood in _MOODS.items():
        cursor.execute("UPDATE t SET e = %s WHERE id = %s", (mood, key))
    for key, document in _DOCUMENTS.items():
        cursor.execute("UPDATE t SET h = %s WHERE id = %s", (document, key))


LEAVES = {
    "i": ("a", "g", "sm", '"Up"', "0", "1", "3", "(-7)", "'2'::int"),
    "n": ("n", "m", "1.5", "0.25", "(-2.50)", "1e-2", "100.0", "1e2"),
    "d": ("d", "d", "2.5::float8", "'NaN'::float8"),
    "r": ("r", "0.5::real"),
    "s": ("s", "v", "'x'", "''", "'12'", "' a '"),
    "c": ("c",),
    "dt": ("dt", "(date '2024-02-29')", "(DATE '2020-12-31')"),
    "ts": ("ts", "(timestamp '2024-01-31 10:00:00')", "dt::timestamp"),
    "tz": ("tz", "timestamptz '2024-01-31 10:00:00+02'"),
    "f": ("f", "true", "(id > 4)"),
    "fd": ("(CASE WHEN abs(d) < 1e9 THEN d END)", "0.1234567890123445::float8", "1.005::float8"),
    "fr": ("(CASE WHEN abs(r) < 1e9 THEN r END)", "0.5::real"),
    "e": ("e",),
    "il": ("l", "l", "('{1,5}'::int[])", "('{}'::int[])"),
    "sl": ("w", "w", "('{a,ab,NULL}'::text[])"),
}
_ADDED = ("il", "sl", "fd", "fr")
"""Lists, and floats that are finite."""
_ALONE = ("f", "c", *_ADDED)
_EACH = (
    *("coalesce({x}, {x})", "nullif({x}, {x})", "greatest({x}, {x})", "least({x}, {x}, {x})"),
    *("CASE WHEN {f} THEN {x} ELSE {x} END", "CASE WHEN {f} THEN {x} END"),
    *("CASE {x} WHEN {x} THEN {x} ELSE {x} END", "coalesce({x}, NULL)"),
)
_TESTS = (
    *("{x} = {x}", "{x} <> {x}", "{x} < {x}", "{x} >= {x}", "{x} IS NULL", "{x} IS NOT NULL"),
    *("{x} IN ({x}, {x})", "{x} NOT IN ({x}, NULL)", "{x} BETWEEN {x} AND {x}"),
    *(
        "{x} IS DISTINCT FROM {x}",
        "{x} IS NOT DISTINCT FROM {x}",
        "{x} BETWEEN SYMMETRIC {x} AND {x}",
    ),
    *("{x} = ANY (ARRAY[{x}, {x}])", "({x}, {i}) = ({x}, 3)", "({x}, {n}) < ({x}, {n})"),
    "({x}, {i}) IN (({x}, 3), ({x}, {i}))",
)
FORMS: dict[str, tuple[str, ...]] = {
    "i": (
        *("{i} + {i}", "{i} - {i}", "{i} * {i}", "{i} / {i}", "{i} % {i}", "mod({i}, {i})"),
        *("-{i}", "abs({i})", "length({s})", "char_length({c})", "{n}::int", "{i}::bigint"),
        *("{i}::smallint", "{f}::int", "{dt} - {dt}", "position('a' in {s})", "strpos({s}, 'b')"),
        *("{d}::int", "{r}::int", "{d}::bigint", "extract(epoch FROM {dt})::bigint"),
        *("cardinality(l)", "array_length(l, 1)", "coalesce(array_length(w, 1), 0)"),
        *("ascii({s})", "octet_length({s})", "ascii({c})"),
        *("'7'::int + {i}", "{i} + '3'", "round({n})::int"),
        *("{il}[1]", "{il}[2]", "{il}[{i}]", "{il}[0]", "{il}[-1]", "{il}[sm]"),
        "array_upper({sl}, 1)",
        *(
            "array_position({il}, {i}::int)",
            "array_position({sl}, {s})",
            "cardinality({il} || {il})",
        ),
    ),
    "n": (
        *(
            "{fd}::numeric(12,2)",
            "{fd}::numeric(38,12)",
            "{fr}::numeric(20,3)",
            "{fr}::numeric(12)",
        ),
        *("round({fd}::numeric, 2)", "round({fr}::numeric, 1)", "round({fd}::numeric)"),
        "round(({fd} * {fd})::numeric, 10)",
        *("{n} + {n}", "{n} - {n}", "{n} * {n}", "{n} + {i}", "{i} - {n}", "{n} * {i}"),
        *("{n} % {n}", "{n} % {i}", "abs({n})", "-{n}", "round({n}, 1)", "round({n})"),
        *(
            "ceil({n})",
            "floor({n})",
            "trunc({n})",
            "{n}::numeric(12,1)",
            "{i}::numeric(12,2)",
            "{i}::numeric",
        ),
        *("round({n} / {n}, 2)", "round({n} / {i}, 1)", "({n} / {i})::numeric(16,2)"),
        *("round({i} / 2.0, 3)", "sign({n})", "extract(year FROM {dt})", "extract(dow FROM {dt})"),
        *("extract(second FROM {ts})", "extract(hour FROM {ts})", "extract(week FROM {dt})"),
        *("extract(epoch FROM {ts})", "extract(epoch FROM {tz})", "extract(epoch FROM {dt})"),
        *("extract(epoch FROM {ts} - {ts})", "extract(epoch FROM ({tz} - {tz}))"),
        "extract(epoch FROM {dt} - {ts})",
        *("extract(isodow FROM {ts})", "extract(doy FROM {dt})", "extract(quarter FROM {ts})"),
        *("{n}", "coalesce({n}, {i})", "coalesce({i}, 1.5)", "CASE WHEN {f} THEN {i} ELSE {n} END"),
        *("'1.5'::numeric(5,2)", "{n} * '2.5'", "round(100.0 * {i} / {n}, 2)", "nullif({i}, {n})"),
        *("{n} / {n}", "{n} / {i}", "{i} / {n}", "{i} / 3.0", "0.2 * ({n} / {i})"),
        *("({n} / 7)::numeric(12,1)", "{n} + {n} / 3", "coalesce({n} / 3, 0)", "-({n} / 7)"),
        *("round({n} / {n}, 10)", "({n} / 3)::int", "ceil({n} / 7)", "abs({n} / {i})"),
        *("greatest({n}, {i})", "round({n} * ({i} / 3.0), 2)", "round({n} + {n} / 7, 2)"),
    ),
    "d": (
        *("{d} + {d}", "{d} - {d}", "{d} * {d}", "{d} / {d}", "{d} + {n}", "{d} * {i}"),
        *("{r} + {d}", "{r} * {n}", "{d} / {i}", "{n} / {d}", "sqrt(abs({d}))", "abs({d})"),
        *("-{d}", "{i}::float8", "{n}::float8", "{r}::float8", "coalesce({d}, {n})"),
        *("log10(abs({d}) + 1)", "log(abs({i}::float8) + 2)"),
        *("greatest({d}, {i})", "power({i}, 2)", "{i} ^ 2", "exp({d})", "ln(abs({d}) + 1)"),
        *(
            "date_part('month', {ts})",
            "floor({i})",
            "trunc({i})",
            "round({i})",
            "ceil({i})",
            "{r} + {i}",
        ),
        *("round({d})", "round({r})", "trunc({i})", "date_part('epoch', {ts})"),
        *("({n} / {n})::float8", "sign({i})", "nullif({n}, {d})"),
    ),
    "r": (
        *("{d}::real", "-{r}", "abs({r})", "{r} + {r}", "{r} * {r}", "{r} / {r}"),
        *("coalesce({r}, {n})", "coalesce({r}, 1)", "{i}::real"),
    ),
    "s": (
        "{e}::text",
        *(
            "{s} || {s}",
            "{s} || {i}",
            "{s} || {n}",
            "{s} || {f}",
            "concat({s}, {dt})",
            "{c} || {s}",
        ),
        *("concat({s}, {i}, {f})", "concat_ws('/', {s}, {i})", "upper({s})", "lower({s})"),
        *("trim({s})", "ltrim({s})", "rtrim({s}, 'x ')", "btrim({s}, 'a')", "left({s}, 2)"),
        *("right({s}, 2)", "substring({s}, 2, 2)", "substring({s} from 2)", "substr({s}, 1, 1)"),
        *("substring({s} for 2)", "replace({s}, 'x', 'yy')", "md5({s})", "lpad({s}, 4, '*')"),
        *("rpad({s}, 4)", "repeat({s}, 2)", "translate({s}, 'ab', 'x')", "{i}::text", "{n}::text"),
        *("{dt}::text", "{f}::text", "{ts}::text", "{s}::varchar(2)", "trim(both 'x' from {s})"),
        *("to_char({dt}, 'YYYY-MM-DD')", "to_char({ts}, 'YYYY/MM/DD HH24:MI:SS')", "{c}::text"),
        *(
            "concat({c}, {s})",
            "j ->> 'k'",
            "j -> 'a' ->> 'b'",
            "CASE WHEN {f} THEN 'x' ELSE {s} END",
        ),
        *("left({s}, -1)", "right({s}, -2)", "left({s}, {i})", "substr({s}, {i})", "reverse({s})"),
        *("substr({s}, -1, 4)", "substr({s}, {i}, 2)", "substr({s}, 2, length({s}))", "chr(65)"),
        *("substring({s} from 0 for 2)", "left({s}, strpos({s}, 'b') - 1)", "reverse({c})"),
        *("j #>> '{a,b}'", "left({c}, -1)", "({dt} + 3)::text", "({ts} - interval '1 year')::text"),
        *("split_part({s}, 'a', 1)", "split_part({s}, ' ', 2)", "split_part({c}, 'b', 1)"),
        *("regexp_replace({s}, '[^0-9]+', '', 'g')", "regexp_replace({s}, '^.', '#')"),
        *("regexp_replace({s}, '[aeo]', '_', 'gi')", "regexp_replace({s}, ' +$', '')"),
        *("regexp_replace({s}, {p}, '#', 'g')", "regexp_replace({s}, {p}, '', 'gi')"),
        *("{sl}[1]", "{sl}[{i}]", "array_to_string({sl}, ',')", "array_to_string({il}, '-')"),
        *("j ->> 1", "j -> 'e' ->> 1", "j #>> '{e,0}'", "j #>> '{a,0}'", "j -> 'e' -> 3 ->> 1"),
        *("j ->> 'user-id'", "j #>> '{e,4,m}'", "h ->> 0", "h ->> 1", "h #>> '{0}'", "h ->> '0'"),
        *("h -> 'x' -> 0 ->> 1", "h -> 'x' -> 1 ->> 'a'", "h #>> '{x,1,c.d}'", "j -> 'e' ->> 2"),
        *("j -> 'e' ->> 0", "j ->> -1", "h ->> 7", "j -> 'e' ->> 9", "h -> 'x' -> 1 ->> 'c.d'"),
        *("coalesce({s}, 'none')", "upper({c})", "left({c}, 2)", "to_char({ts}, 'HH12:MI AM')"),
        *("to_char({ts}, 'FMDay, DD Mon YYYY')", "to_char({dt}, 'YYYY-\"W\"IW Q MONTH')"),
    ),
    "c": ("c", "CASE WHEN {f} THEN {c} ELSE {c} END", "coalesce({c}, {c})", "coalesce({c}, NULL)"),
    "dt": (
        *("{dt} + 1", "{dt} - 30", "{dt} + {i}", "3 + {dt}", "{ts}::date", "'2024-02-29'::date"),
        "make_date(2024, 2, 29)",
    ),
    "ts": (
        *("{dt} + interval '1 month'", "{ts} - interval '1' year", "{ts} + interval '2 days'"),
        *("date_trunc('month', {tz}, 'UTC') AT TIME ZONE 'UTC'",),
        *("date_trunc('month', {ts})", "date_trunc('week', {ts})", "date_trunc('hour', {ts})"),
        *("{ts} + interval '1 month 3 days'", "{tz} AT TIME ZONE 'UTC'", "{dt}::timestamp"),
        *("{ts} - interval '90 minutes'", "coalesce({dt}, {ts})", "date_trunc('quarter', {ts})"),
    ),
    "tz": (
        "date_trunc('hour', {tz}, 'UTC')",
        "{ts} AT TIME ZONE 'UTC'",
        "{tz} + interval '1 hour'",
        "{tz} - interval '30 seconds'",
    ),
    "f": (
        *("NOT {f}", "{f} AND {f}", "{f} OR {f}", "{f} = {f}", "{f} IS TRUE", "{f} IS NOT FALSE"),
        *("{f} IS UNKNOWN", "{i} = {n}", "{i} < {d}", "{n} = {d}", "{n} > {r}", "{r} = {d}"),
        *("{r} < {i}", "{dt} < {ts}", "{i} IN ({n}, {i})", "{n} BETWEEN {i} AND {n}"),
        *("{s} LIKE '%a%'", "{s} NOT LIKE '1_'", "{c} LIKE 'a%'", "{s} ILIKE 'O%'"),
        "{s} NOT ILIKE '%A'",
        *("{s} ~ '^[a-z]+$'", "{s} ~ 'B.i|12'", "{s} ~* 'o.?b'", "{s} !~ '[^0-9]'", "{c} ~ '^.b$'"),
        *("{s} !~* '^[A-C ]'", "regexp_like({s}, '(ab|x){1,2}')", "{s} ~ '\\\\.|_'"),
        *("{s} ~ {p}", "{s} ~ {p}", "{s} ~* {p}", "{s} !~ {p}", "{c} ~ {p}", "{s} !~* {p}"),
        *("starts_with({s}, 'O')", "{i} = '5'", "{dt} > '2024-01-01'", "{c} = 'ab  '", "{c} = {s}"),
        *("{c} <> v", "{n} > {n} / 3", "{i} > {i} / 2.0", "{d} IN (1, 2.5)", "{a} IS NOT NULL"),
        *(
            "{i} = ANY(l)",
            "{s} = ANY(w)",
            "'ab' = ANY(w)",
            "NOT ({i}::int <> ALL(l))",
            "5 = ANY(l)",
        ),
        *("{i} = ANY('{1,5,NULL}')", "{s} = ANY('{a,ab}')", "{i} > ANY(ARRAY[{i}, 3])"),
        *("{n} <= ALL(ARRAY[{n}, 5])", "{i} <> ALL('{3,4}'::int[])"),
        *("{i} <> ALL (ARRAY[1, 5])", "{ts} >= '2024-02-29'", "{tz} > '2024-01-01 00:00+00'"),
        *("{il} @> {il}", "{il} <@ {il}", "{il} && {il}", "{sl} @> {sl}", "{sl} && {sl}"),
        *("{il} @> '{1}'", "{il} <@ '{1,5,2,NULL}'", "{il} && ARRAY[1, 12]", "{sl} && '{a,ab}'"),
        *(
            "{sl} @> ARRAY[{s}::text, {s}]",
            "{il} @> ARRAY[{i}::int]",
            "{il} = '{1,2}'",
            "{il} = {il}",
        ),
        *("'{}' <@ {il}", "{il} @> '{NULL}'", "{i} = ANY({il})", "{s} <> ALL({sl})"),
        *("coalesce({f}, false)", "{s} IN ('a', 'ab')", "{c} IN ('ab', 'B')"),
    ),
    "fd": ("{fd} / 3", "{fd} * 1e-5::float8", "{fd} + sm", "{fr} * {fd}"),
    "fr": ("{fr} / 3::real", "{fr} + {fr}"),
    "e": ("coalesce({e}, 'sad')", "nullif({e}, 'ok')", "greatest({e}, 'ok')"),
    "il": (
        *("{il} || {il}", "array_append({il}, {i}::int)", "array_prepend(a, {il})"),
        *("array_remove({il}, {i}::int)", "({il})[2:3]", "({il})[sm:]", "({il})[:a]"),
        *("coalesce({il}, {il})", "CASE WHEN {f} THEN {il} ELSE {il} END", "coalesce({il}, '{}')"),
        *("ARRAY[{i}::int, 1]", "ARRAY[sm, {i}::int, NULL]", "CASE WHEN {f} THEN {il} END"),
    ),
    "sl": (
        *("{sl} || {sl}", "array_append({sl}, {s})", "array_prepend({s}, {sl})"),
        *("array_remove({sl}, {s})", "({sl})[2:3]", "({sl})[sm:]", "({sl})[:a]"),
        *("coalesce({sl}, {sl})", "CASE WHEN {f} THEN {sl} ELSE {sl} END", "coalesce({sl}, '{a}')"),
        *("ARRAY[{s}, {s}]", "ARRAY[{s}, 'x', NULL]"),
    ),
}


class Drawn:
    """Draws from one seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secrets
        self._forms = {
            sort: (
                *forms,
                *(form.replace("{x}", f"{{{sort}}}") for form in _EACH if sort not in _ALONE),
            )
            for sort, forms in FORMS.items()
        }
        tests = (
            form.replace("{x}", f"{{{sort}}}")
            for form in _TESTS
            for sort in FORMS
            if sort not in _ADDED
        )
        self._forms["f"] = (*FORMS["f"], *tests)

    def expression(self) -> str:
        """Return an expression over a row of table `t`."""
        return self._of(self._chance.choice([*FORMS]), self._chance.choice((1, 2, 2, 3)))

    def _of(self, sort: str, depth: int) -> str:
        sort = {"a": "i"}.get(sort, sort)
        if sort == "p":
            return self._pattern()
        if depth == 0 or (depth < 2 and self._chance.random() < 0.3):
            return self._chance.choice(LEAVES[sort])
        parts = self._chance.choice(self._forms[sort])
        made = ""
        while "{" in parts:
            before, _, rest = parts.partition("{")
            inner, _, parts = rest.partition("}")
            if inner not in {*LEAVES, "a", "p"}:  # no part that is drawn
                made += f"{before}{{{inner}}}"
                continue
            value = self._of(inner, depth - 1)
            bare = inner == "p" or value in LEAVES.get(inner, ())
            made += before + (value if bare else f"({value})")
        return made + parts

    def _pattern(self) -> str:
        """Return a constant regular expression."""
        signs = ("a", "b", "x", "O", "1", ".", "[a-c]", "[^a-z]", "[0-9_]", "(a|b)", "(ab|2)", " ")
        times = ("", "", "", "*", "+", "?", "{1,2}", "{2}")
        drawn = [self._any(*signs) + self._any(*times) for _ in range(self._chance.randint(1, 3))]
        return f"'{self._any('', '', '^')}{''.join(drawn)}{self._any('', '', '$', '|x')}'"

    def _any(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def query(self) -> str:
        """Return a query whose rows are determined."""
        return self._any(*QUERIES).format(
            agg=self._any(*AGGREGATES),
            agg2=self._any(*AGGREGATES),
            cond=self._any(*CONDITIONS),
            cond2=self._any(*CONDITIONS),
            col=self._any("t.a", "t.s", "t.e", "t.dt", "t.f", "t.n", "t.sm", "coalesce(t.a, 0)"),
            join=self._any("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"),
            on=self._any(*ON),
            set=self._any("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"),
            way=self._any("", "DESC", "NULLS FIRST", "DESC NULLS LAST"),
            left=self._any("", "LEFT"),
            natural=self._any("", "LEFT", "RIGHT", "FULL"),
            win=self._any(*WINDOWS),
            expr=self._of(self._any("i", "n", "s", "f", "dt", "d", "e", "il", "sl"), 1),
        )


AGGREGATES = (
    *("count(*)", "count(t.a)", "count(DISTINCT t.s)", "sum(t.a)", "sum(t.sm)", "sum(t.n)"),
    *("sum(t.g % 1000)", "min(t.n)", "max(t.s)", "min(t.dt)", "max(t.ts)", "bool_and(t.f)"),
    *("min(t.e)", "max(t.e) FILTER (WHERE t.f)"),
    *("bool_or(t.f)", "sum(t.a) FILTER (WHERE t.f)", "count(*) FILTER (WHERE t.n > 0)"),
    *("round(avg(t.n), 2)", "round(avg(t.a), 3)", "avg(t.d)", "sum(DISTINCT t.sm)", "max(t.c)"),
    *("coalesce(sum(t.m), 0)", "round(sum(t.m) / nullif(count(*), 0), 1)", "min(t.c)"),
    *("string_agg(t.s, ',' ORDER BY t.id)", "string_agg(t.v || '!', '' ORDER BY t.dt DESC, t.id)"),
    *("string_agg(t.c, '-' ORDER BY t.n, t.id) FILTER (WHERE t.f)",),
    *("percentile_cont(0.5) WITHIN GROUP (ORDER BY t.a)",),
    *("percentile_cont(0.9) WITHIN GROUP (ORDER BY t.n DESC) FILTER (WHERE t.f)",),
    *("avg(t.n)", "avg(t.a)", "avg(t.g)", "sum(t.n) / count(*)", "0.5 * avg(t.m)"),
    *("avg(DISTINCT t.sm)", "avg(t.n) FILTER (WHERE t.f)", "100.00 * sum(t.m) / sum(t.n)"),
    *("avg(t.n)::float8", "every(t.f)", "round(avg(t.m) FILTER (WHERE t.f), 2)", "max(t.tz)"),
    *("sum(CASE WHEN t.f THEN 1 ELSE 0 END)", "round(avg(DISTINCT t.sm), 1)"),
    *("array_agg(t.a ORDER BY t.id)", "array_agg(t.s ORDER BY t.n DESC, t.id)"),
    *("array_agg(t.n ORDER BY t.id) FILTER (WHERE t.f)", "array_agg(DISTINCT t.f ORDER BY t.f)"),
    *("array_agg(DISTINCT t.s ORDER BY t.s DESC NULLS LAST)", "array_agg(t.d ORDER BY t.d, t.id)"),
    *("(array_agg(t.dt ORDER BY t.a NULLS FIRST, t.id))[1]", "array_agg(t.ts ORDER BY t.c, t.id)"),
    *("cardinality(array_agg(t.a ORDER BY t.id))",),
    "round(avg(t.d) FILTER (WHERE t.id IN (1, 2, 7, 8, 9))::numeric, 2)",
    *("string_agg(DISTINCT t.s, ',' ORDER BY t.s)", "min(t.r)::numeric(12,2)"),
    *("string_agg(DISTINCT t.c::text, '-' ORDER BY t.c::text DESC) FILTER (WHERE t.id > 2)",),
    *("array_to_string(array_agg(t.v ORDER BY t.id), '/')", "array_agg(t.j ->> 'k' ORDER BY t.id)"),
    *("array_agg(lower(t.s) ORDER BY t.id DESC)", "'{3}' <@ array_agg(t.a ORDER BY t.id)"),
)
CONDITIONS = (
    *("t.a > 0", "t.f", "NOT t.f", "t.s LIKE 'a%'", "t.n IS NOT NULL", "t.id IN (1, 2, 8)"),
    *("EXISTS (SELECT 1 FROM u WHERE u.t = t.id)", "t.c = 'ab'", "t.a IS DISTINCT FROM 3"),
    *("NOT EXISTS (SELECT 1 FROM u WHERE u.t = t.id AND u.x > 3)", "t.dt < '2024-01-01'"),
    *("t.a IN (SELECT x FROM u)", "t.a NOT IN (SELECT x FROM u WHERE x IS NOT NULL)"),
    *("t.a NOT IN (SELECT x FROM u)", "t.id = ANY (SELECT u.t FROM u)", "true"),
    *("t.a IN (SELECT x FROM u WHERE u.t = t.id)", "(t.id, t.a) IN (SELECT u.t, u.x FROM u)"),
    *("t.n = (SELECT avg(n) FROM u)", "t.n IN (SELECT avg(n) FROM u GROUP BY t)"),
    *("t.n > (SELECT avg(n) FROM u)", "t.n > (SELECT 0.2 * avg(n) FROM u WHERE u.t = t.id)"),
    *("(SELECT count(*) FROM u WHERE u.t = t.id) > 1", "t.n >= (SELECT max(n) FROM u WHERE t = 5)"),
    "EXISTS (SELECT * FROM u v JOIN u w ON w.t = v.t WHERE v.t = t.id AND w.n < v.n)",
    "t.a NOT IN (SELECT x FROM u WHERE u.t = t.id)",
    "(t.a, t.c) NOT IN (SELECT x, c FROM u WHERE u.t = t.id)",
    "(t.a > 3 OR EXISTS (SELECT 1 FROM u WHERE u.t = t.id))",
    "CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.t = t.id AND u.x > 3) THEN t.f ELSE t.a > 0 END",
    "t.s <> ALL (SELECT s FROM u WHERE s IS NOT NULL)",
    "t.id IN (SELECT t FROM u GROUP BY t HAVING count(*) > 1)",
    "(t.a > 3 OR t.a IN (SELECT x FROM u WHERE id < 4))",
)
ON = (
    *("u.t = t.id", "u.x = t.a", "u.s = t.s", "u.c = t.c", "u.n = t.n AND u.id > 1"),
    *("u.t = t.id AND u.dt = t.dt", "u.x < t.a AND u.t = t.id", "u.n = t.m"),
)
WINDOWS = (
    *("row_number() OVER (ORDER BY t.id)", "rank() OVER (PARTITION BY t.f ORDER BY t.a DESC)"),
    *("sum(t.n) OVER (PARTITION BY t.f)", "lag(t.a) OVER (ORDER BY t.id)", "count(*) OVER ()"),
    *("sum(t.sm) OVER (ORDER BY t.id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",),
    *("first_value(t.a) OVER (PARTITION BY t.f ORDER BY t.n, t.id)",),
    *("last_value(t.s) OVER (ORDER BY t.id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",),
    *("nth_value(t.n, 2) OVER (PARTITION BY t.f ORDER BY t.id)",),
    *("rank() OVER (ORDER BY t.e DESC)", "max(t.e) OVER (PARTITION BY t.f ORDER BY t.id)"),
    *("dense_rank() OVER (ORDER BY t.dt)", "max(t.s) OVER (PARTITION BY t.f ORDER BY t.id)"),
    *("lag(t.a, 1, 0) OVER (ORDER BY t.id)", "lead(t.n, 1, t.a) OVER (ORDER BY t.id)"),
    *("lag(t.s, 2, 'x') OVER (PARTITION BY t.f ORDER BY t.id)",),
    *("lead(t.s, 2) OVER (PARTITION BY t.f ORDER BY t.id DESC)", "ntile(3) OVER (ORDER BY t.id)"),
    *("avg(t.a) OVER (PARTITION BY t.f)", "avg(t.n) OVER (ORDER BY t.id)"),
    *("round(avg(t.n) OVER (PARTITION BY t.f), 2)", "sum(t.a) OVER (ORDER BY t.dt, t.id)"),
    *(
        "percent_rank() OVER (ORDER BY t.a)",
        "min(t.n) OVER (ORDER BY t.a RANGE UNBOUNDED PRECEDING)",
    ),
)
QUERIES = (
    "SELECT t.id, {expr} AS x FROM t WHERE {cond} AND {cond2}",
    "SELECT {col} AS k, {agg} AS x, {agg2} AS y FROM t WHERE {cond} GROUP BY 1",
    "SELECT {col} AS k, {agg} AS x FROM t GROUP BY {col} HAVING {agg2} IS NOT NULL",
    "SELECT {agg} AS x, {agg2} AS y FROM t WHERE {cond}",
    "SELECT t.id, u.id AS other, t.s, u.n FROM t {join} u ON {on}",
    "SELECT t.id, {agg} AS x FROM t {join} u ON {on} GROUP BY t.id",
    "SELECT t.id, t.s, t.c, count(u.id) AS x FROM t LEFT JOIN u ON {on} GROUP BY t.id",
    "SELECT DISTINCT {col} AS k, t.f FROM t WHERE {cond}",
    "SELECT {col} AS k, t.a AS x FROM t WHERE {cond} {set} SELECT {col}, x FROM t JOIN u ON {on}",
    "SELECT a AS x, n AS y FROM t {set} SELECT x, n FROM u",
    "SELECT s AS x, NULL AS y FROM t UNION SELECT s, '5' FROM u",
    (
        "SELECT DISTINCT ON (t.f) t.f, t.id, {expr} AS x FROM t WHERE {cond}"
        " ORDER BY t.f, t.dt {way}, t.id"
    ),
    "SELECT t.id, t.a FROM t WHERE {cond} ORDER BY t.a {way}, t.id LIMIT 3",
    "SELECT t.id, t.e FROM t WHERE {cond} ORDER BY t.e {way}, t.id LIMIT 4",
    "SELECT t.id, json_build_object('a', t.a, 'user-id', t.n, '1', {col}) AS x FROM t WHERE {cond}",
    (
        "SELECT {col} AS k, coalesce(jsonb_agg(jsonb_build_object('xx', t.s, 'n', t.n, 'w', t.w)"
        " ORDER BY t.a {way}, t.id) FILTER (WHERE {cond}), '[]') AS x FROM t GROUP BY 1"
    ),
    (
        "SELECT t.id, (SELECT json_agg(json_build_object('n', u.n, 'c', u.c) ORDER BY u.n {way},"
        " u.id) FROM u WHERE u.t = t.id) AS x, 1 AS y FROM t WHERE {cond}"
    ),
    "SELECT t.f, json_agg({col} ORDER BY t.a {way}, t.id) AS x FROM t WHERE t.id = 6 GROUP BY 1",
    "SELECT DISTINCT t.e FROM t WHERE {cond} ORDER BY t.e {way} LIMIT 2",
    "SELECT t.f, string_agg(t.e::text, ',' ORDER BY t.e {way}, t.id) AS x FROM t GROUP BY t.f",
    "SELECT t.id, t.s FROM t ORDER BY 2 {way}, 1 DESC OFFSET 2 LIMIT 4",
    "SELECT t.id, {win} AS x FROM t WHERE {cond}",
    "SELECT * FROM (SELECT t.id, {win} AS x FROM t) AS q WHERE q.x IS NOT NULL",
    "WITH q AS (SELECT {col} AS k, {agg} AS x FROM t GROUP BY 1) SELECT * FROM q",
    "WITH q (k, z) AS (SELECT t, sum(n) FROM u GROUP BY t) SELECT t.id, z FROM t, q WHERE k = t.id",
    "SELECT t.id, (SELECT max(u.n) FROM u WHERE u.t = t.id) AS x FROM t WHERE {cond}",
    "SELECT t.id, (SELECT count(*) FROM u WHERE u.t = t.id AND u.x = 3) AS x FROM t",
    "SELECT t.f, t.a, {agg} AS x FROM t GROUP BY ROLLUP (t.f, t.a)",
    "SELECT t.f, {agg} AS x FROM t GROUP BY GROUPING SETS ((t.f), ())",
    "SELECT t.f, t.a, grouping(t.f, t.a) AS g, {agg} AS x FROM t GROUP BY CUBE (t.f, t.a)",
    "SELECT t.id, NOT EXISTS (SELECT 1 FROM u WHERE u.t = t.id) AS x FROM t WHERE {cond}",
    (
        "SELECT v.k, v.n, t.s FROM (VALUES (1, 'a'), (2, NULL), (8, 'b')) AS v(k, n)"
        " JOIN t ON t.id = v.k"
    ),
    "SELECT id, t.s, u.n FROM t JOIN u USING (id) WHERE {cond}",
    "SELECT id, t.a, u.x FROM t FULL JOIN u USING (id)",
    "SELECT * FROM (SELECT id, a, s FROM t) AS p NATURAL {natural} JOIN (SELECT id, x FROM u) AS q",
    "SELECT t.id, (SELECT u.s FROM u WHERE u.id = t.a) AS x FROM t WHERE {cond}",
    "SELECT u.id, (SELECT {expr} FROM t WHERE t.id = u.t) AS x FROM u",
    "SELECT u.t, (SELECT t.s FROM t WHERE t.id = u.t) AS x, sum(u.n) AS y FROM u GROUP BY u.t",
    "SELECT t.f, round(sum(t.n) / (SELECT max(n) FROM u), 3) AS x FROM t WHERE {cond} GROUP BY t.f",
    "SELECT t.id, round(t.n / (SELECT avg(n) FROM u), 2) AS x FROM t WHERE {cond}",
    "SELECT t.id, count(*) AS x FROM t, u WHERE {on} AND {cond} GROUP BY t.id",
    (
        "SELECT t.id, (SELECT coalesce(u.s, '-') FROM u WHERE u.t = t.id AND u.id < 8"
        " ORDER BY u.n {way}, u.id LIMIT 1) AS x FROM t WHERE {cond}"
    ),
    (
        "SELECT t.id, t.s FROM t WHERE (SELECT u.n FROM u WHERE u.c = t.c ORDER BY u.dt {way},"
        " u.id LIMIT 1) > 1 OR {cond}"
    ),
    (
        "SELECT t.id, q.x, q.n FROM t {left} JOIN LATERAL (SELECT u.x, u.n FROM u WHERE u.t = t.id"
        " AND u.id < 8 ORDER BY u.n {way}, u.id LIMIT 1) AS q ON true WHERE {cond}"
    ),
    (
        "SELECT t.id, q.id AS other, q.r, q.n FROM t {left} JOIN LATERAL (SELECT u.id, u.n,"
        " row_number() OVER (ORDER BY u.n {way}, u.id) AS r FROM u WHERE u.t = t.id) q ON q.n > 0"
    ),
    (
        "SELECT t.id, q.id AS other, q.x FROM t {left} JOIN LATERAL (SELECT u.id, sum(u.n) OVER"
        " (PARTITION BY u.x) AS x FROM u WHERE u.c = t.c ORDER BY u.id LIMIT 2) q ON true"
    ),
    (
        "SELECT t.id, q.x, q.y, p.z FROM t CROSS JOIN LATERAL (SELECT sum(u.n) AS x, count(*) AS y"
        " FROM u WHERE u.t = t.id) AS q, LATERAL (SELECT q.y + t.id AS z) p WHERE {cond}"
    ),
    (
        "SELECT t.id, u.id AS other, q.k FROM t, u, LATERAL (SELECT w.id AS k, w.s || 'x' AS s"
        " FROM u w WHERE w.x = u.x AND t.id = w.t) q WHERE u.t = t.id AND q.s IS NOT NULL"
    ),
    (
        "SELECT q.k, count(*) AS n FROM (SELECT u.t AS k FROM u UNION ALL SELECT a FROM t) q"
        " GROUP BY q.k"
    ),
)
"""Queries; what stands in braces is drawn."""
