"""Nested expressions that are drawn at random out of forms that tests compare one by one.

Each form is known to mean the same; a nest of them may still not: an inner value is one that no
line of `tests/fixtures/expressions.txt` has, or of a type that is told otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from tests.support.compared_signatures import TYPES, signatures_of
from tests.support.hostile_rows import expressions, query_of
from views.verify.sql.translate import UnverifiableError, translate

AT_ONCE = 25
"""How many one query has."""
LEAVES = {
    "i": ("a", "g", "sm", "0", "1", "3", "-7"),
    "n": ("n", "m", "1.5", "0.25", "-2.50"),
    "r": ("r",),
    "d": ("d", "1e3"),
    "s": ("s", "'x'", "''", "'12'", "' a '"),
    "dt": ("dt", "date '2024-02-29'"),
    "ts": ("ts",),
    "tz": ("tz",),
    "f": ("f", "true", "(k > 4)"),
}
"""Of each sort of values some that are not computed: columns, and constants."""
_EACH = (
    *("coalesce({x}, {x})", "nullif({x}, {x})", "greatest({x}, {x})", "least({x}, {x})"),
    *("CASE WHEN {f} THEN {x} ELSE {x} END", "CASE WHEN {f} THEN {x} END", "if({f}, {x}, {x})"),
    "CASE {x} WHEN {x} THEN {x} ELSE {x} END",
)
_TESTS = (
    *("{x} = {x}", "{x} <> {x}", "{x} < {x}", "{x} >= {x}", "{x} IS NULL", "{x} IS NOT NULL"),
    *("{x} IN ({x}, {x})", "{x} NOT IN ({x}, {x})", "{x} BETWEEN {x} AND {x}", "{x} <=> {x}"),
    "{x} IS DISTINCT FROM {x}",
)
FORMS: dict[str, tuple[str, ...]] = {
    "i": (
        *("{i} + {i}", "{i} - {i}", "{i} * {i}", "{i} % {i}", "{i} div {i}", "pmod({i}, {i})"),
        *("abs({i})", "-{i}", "{i} & {i}", "{i} | {i}", "~{i}", "round({i}, -1)"),
        *("length({s})", "position('x' IN {s})", "cast({n} AS int)", "cast({d} AS bigint)"),
        *("cast({f} AS int)", "cast({s} AS int)", "try_cast({s} AS int)", "datediff({dt}, {dt})"),
        *("extract(year FROM {dt})", "extract(month FROM {ts})", "extract(hour FROM {tz})"),
        *("extract(dow FROM {dt})", "extract(week FROM {ts})", "year({dt})", "quarter({dt})"),
        *("day({ts})", "dayofweek({dt})", "weekofyear({dt})", "hour({ts})", "minute({tz})"),
        *("floor({d})", "ceil({d})", "cast({i} AS int)", "cast({i} AS bigint)"),
    ),
    "n": (
        *("{n} + {n}", "{n} - {n}", "{n} * {n}", "{n} + {i}", "{i} - {n}", "{n} * {i}"),
        *("{n} / {n}", "{n} / {i}", "{i} / {n}", "{n} % {i}", "{n} % {n}", "abs({n})", "-{n}"),
        *("round({n}, 1)", "round({n})", "ceil({n})", "floor({n})", "coalesce({n}, {i})"),
        *("cast({i} AS decimal(12,2))", "cast({n} AS decimal(10,1))", "greatest({n}, {i})"),
        *("cast({d} AS decimal(10,2))", "extract(second FROM {ts})", "pmod({n}, {n})"),
        *("try_cast({s} AS decimal(10,2))", "cast({n} AS decimal(20,4))"),
    ),
    "r": (
        *("cast({d} AS float)", "cast({n} AS float)", "-{r}", "abs({r})", "{r} + {r}"),
        *("{r} * {r}", "{r} - {r}"),
    ),
    "d": (
        *("{d} + {d}", "{d} - {d}", "{d} * {d}", "{d} / {d}", "{d} + {n}", "{d} * {i}"),
        *("{r} + {d}", "{r} * {n}", "{i} / {i}", "{d} / {i}", "{n} / {d}", "{r} / {i}"),
        *("sqrt(abs({d}))", "ln(abs({d}) + 1)", "power({d}, 2)", "abs({d})", "-{d}", "sign({d})"),
        *("cast({i} AS double)", "cast({n} AS double)", "cast({r} AS double)", "round({d}, 1)"),
        *("coalesce({d}, {n})", "coalesce({r}, {i})", "greatest({r}, {d})", "least({d}, {n})"),
        *("{d} % {i}", "power({i}, 2)", "exp({d})", "sign({n})", "try_cast({s} AS double)"),
    ),
    "s": (
        *("{s} || {s}", "{s} || {i}", "{s} || {n}", "{s} || {f}", "concat({s}, {dt})"),
        *("concat({s}, {i}, {s})", "concat_ws('/', {s}, {i})", "concat_ws('-', {n}, {s}, {dt})"),
        *("upper({s})", "lower({s})", "trim({s})", "ltrim({s})", "rtrim({s})", "left({s}, 2)"),
        *("right({s}, 2)", "substring({s}, 2, 2)", "replace({s}, 'x', 'yy')", "md5({s})"),
        *("lpad({s}, 4, '*')", "rpad({s}, 4, 'ab')", "repeat({s}, 2)", "translate({s}, 'ab', 'x')"),
        *("cast({i} AS string)", "cast({n} AS string)", "cast({dt} AS string)"),
        *("cast({ts} AS string)", "cast({tz} AS string)", "cast({f} AS string)"),
        *("date_format({dt}, 'yyyy-MM-dd')", "{s} || {ts}", "trim(BOTH 'x' FROM {s})"),
    ),
    "dt": (
        *("date_add({dt}, 1)", "date_sub({dt}, 1)", "{dt} + 1", "{dt} - 1", "last_day({dt})"),
        *("cast({ts} AS date)", "cast({tz} AS date)", "date({tz})", "trunc({dt}, 'month')"),
        *("{dt} + interval '1' month", "{dt} - interval '1' year"),
        "cast({s} AS date)",
    ),
    "ts": (
        *("cast({dt} AS timestamp_ntz)", "{ts} + interval '1' day", "{ts} - interval 1 month"),
        *("coalesce({dt}, {ts})", "greatest({dt}, {ts})", "least({ts}, {dt})"),
    ),
    "tz": (
        *("date_trunc('month', {ts})", "date_trunc('day', {tz})", "cast({ts} AS timestamp)"),
        *("coalesce({ts}, {tz})", "greatest({dt}, {tz})", "date_trunc('quarter', {dt})"),
    ),
    "f": (
        *("NOT {f}", "{f} AND {f}", "{f} OR {f}", "{f} = {f}", "{f} IS NULL", "{f} <=> {f}"),
        *("{i} = {n}", "{i} < {d}", "{n} = {d}", "{n} > {r}", "{r} = {d}", "{d} >= {i}"),
        *("{r} < {i}", "{dt} < {ts}", "{ts} = {tz}", "{dt} = {tz}", "{i} IN ({n}, {i})"),
        *("{n} BETWEEN {i} AND {n}", "{s} LIKE '%a%'", "{s} LIKE '1_'", "contains({s}, 'x')"),
        *("startswith({s}, 'O')", "endswith({s}, 'n')", "isnan({d})", "cast({i} AS boolean)"),
        *("{i} = '5'", "{dt} > '2024-01-01'", "{s} IN ('x', {s})", "coalesce({f}, {f})"),
    ),
}


class Drawn:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secrets
        self._forms = {
            sort: (
                *forms,
                *(each.replace("{x}", f"{{{sort}}}") for each in (*_EACH, *_EACH) if sort != "f"),
            )
            for sort, forms in FORMS.items()
        }
        compared = (each.replace("{x}", f"{{{sort}}}") for each in _TESTS for sort in FORMS)
        self._forms["f"] = (*FORMS["f"], *(form for form in compared if "{f}" not in form))

    def provable(self) -> Iterator[str]:
        """Yield expressions that the verifier takes, without an end."""
        while True:
            sort = self._chance.choice([*FORMS])
            text = self._of(sort, self._chance.choice((2, 2, 3)))
            try:
                translate(query_of(text), TYPES)
            except UnverifiableError:
                continue
            yield text

    def _of(self, sort: str, depth: int) -> str:
        leaf = depth == 0 or (depth < 2 and self._chance.random() < 0.3)
        if leaf:
            return self._chance.choice(LEAVES[sort])
        parts = self._chance.choice(self._forms[sort])
        made = ""
        while "{" in parts:
            before, _, rest = parts.partition("{")
            inner, _, parts = rest.partition("}")
            value = self._of(inner, depth - 1)
            made += before + (value if value in LEAVES[inner] else f"({value})")
        return made + parts


@cache
def everywhere() -> frozenset[str]:
    """Return the signatures that PostgreSQL is asked for, too."""
    return frozenset(each for line in expressions("everywhere") for each in signatures_of(line))
