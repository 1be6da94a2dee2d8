"""Each type and each comparison that a view can make of it: PostgreSQL's answer, or refused.

One database has hostile values of all types. A view's expression is either refused before Spark
starts, or Spark and the verifier give what PostgreSQL gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, permutations

import pytest

from changelog.contract.base.errors import ViewError
from tests.support.compared_types import (
    CORE,
    DDL,
    FEW,
    MIXED,
    MORE,
    OF_A_CONSTANT,
    OF_AGGREGATES,
    OF_ALL_ROWS,
    OF_NULLS,
    OF_TEXTS,
    OF_TWO_ROWS,
    OF_TWO_TYPES,
    WHOLE,
)
from tests.support.engines import Engines, Source, own_session

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

OF_ONE_ROW = "SELECT x.id AS id, y.id AS other, {} FROM m AS x CROSS JOIN m AS y"
OF_SUMS = "SELECT 1 AS id, {} FROM m"
OF_THE_WHOLE = "SELECT id, {} FROM m WHERE id = 1"
SOME = 100
_WITHOUT = re.compile("function|ordering operator|could not implement")
BLANK = {"char(5)", "bpchar", "code"}
OF_OTHER_TEXT = {"real", "double precision", "timestamptz"}
"""Types of which the plan says that their text is written otherwise."""


@dataclass(frozen=True)
class Asked:
    """An expression over a column of a type."""

    type: str
    form: str
    text: str

    def __str__(self):
        return f"{self.type}: {self.text}"


def asked_of(types, whole, pairs):
    """Return all expressions: of two rows, of all rows, and of whole tables."""
    rows, sums, tables = [], [], []
    for number, (name, values) in enumerate(types.items()):
        one, other = ("'" + value.replace("'", "''") + "'" for value in values[:2])
        blank = "'" + values[0] + "  '" if name in BLANK else one
        column = f"c{number}"
        for constant in dict.fromkeys((one, blank)):
            rows += [
                Asked(name, form, form.format(c=column, a=constant, b=other))
                for form in (*OF_TWO_ROWS, *OF_A_CONSTANT, *OF_TEXTS, *OF_NULLS)
                if (form != "x.{c}" or name in BLANK)  # else the client's types differ alone
                and (name not in OF_OTHER_TEXT or "||" not in form)
            ]
        sums += [Asked(name, form, form.format(c=column)) for form in OF_AGGREGATES]
        if name in whole:
            texts = [(form, form.format(c=column, a=one, b=other)) for form in OF_ALL_ROWS]
            tables += [Asked(name, *each) for each in texts]
    numbers = {name: f"c{number}" for number, name in enumerate(types)}
    for name, other in pairs:
        for form in OF_TWO_TYPES:
            if {name, other} <= numbers.keys():
                rows.append(Asked(name, form, form.format(c=numbers[name], o=numbers[other])))
    return list(dict.fromkeys(rows)), sums, tables


def filled(types, cursor):
    """Make two tables with a column of each type, and put its values in; one row has nulls."""
    listed = ", ".join(f"c{number} {name}" for number, name in enumerate(types))
    count = max(map(len, types.values())) + 1
    for table in ("m", "n"):
        cursor.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, {listed})")
        for row in range(count):
            values = [v[row % len(v)] if row < count - 1 else None for v in types.values()]
            if table == "n":
                values = [v[(row + 1) % len(v)] for v in types.values()]
            marks = ", ".join(["%s"] * (len(values) + 1))
            cursor.execute(f"INSERT INTO {table} VALUES ({marks})", [row + 1, *values])


def compared(source, engines, asked, query):
    """Compare all expressions; return those that differ and those that are taken."""
    wrong, taken = [], []
    for each in asked:
        theirs = source.answer(query.format(f"{each.text} AS e"))
        try:
            spec = engines.view(query.format(f"{each.text} AS e"))
        except ViewError:
            continue
        if isinstance(theirs, Exception):
            # No answer of PostgreSQL's that could be another one.
            if each.form in OF_TEXTS or "{a}" in each.form or _WITHOUT.search(str(theirs)):
                continue
            wrong.append(f"{each}: PostgreSQL refuses it: {str(theirs).splitlines()[0]}")
            continue
        taken.append((each, theirs, engines.proves(spec)))
    wrong += differences(engines, query, taken, engines.by_spark, "Spark")
    provable = [each for each in taken if each[2]]
    wrong += differences(engines, query, provable, engines.by_verifier, "the verifier")
    return wrong, [each for each, *_ in taken]


def differences(engines, query, taken, compute, engine):
    """Compute many at once, or each by itself where one cannot be computed."""
    wrong = []
    for start in range(0, len(taken), SOME):
        some = taken[start : start + SOME]
        listed = ", ".join(f"{each.text} AS e{n}" for n, (each, *_) in enumerate(some))
        try:
            rows = compute(engines.view(query.format(listed)))
        except Exception:  # noqa: BLE001 - of any engine
            if len(some) == 1:
                wrong.append(f"{some[0][0]}: {engine} cannot compute it")
                continue
            middle = len(some) // 2
            wrong += differences(engines, query, some[:middle], compute, engine)
            wrong += differences(engines, query, some[middle:], compute, engine)
            continue
        first = 2 if "other" in query else 1
        for place, (each, theirs, _) in enumerate(some):
            ours = [row[first + place] for row in rows]
            expected = [row[first] for row in theirs]
            if ours != expected:
                wrong.append(f"{each}: {engine} {ours}, PostgreSQL {expected}")
    return wrong


def run(spark, database, types, whole, pairs):
    """Return what differs, and what is taken, of all expressions."""
    source = Source(database, DDL, partial(filled, types))
    wrong, taken = [], []
    try:
        engines = Engines(own_session(spark), source)
        queries = (OF_ONE_ROW, OF_SUMS, OF_THE_WHOLE)
        for query, asked in zip(queries, asked_of(types, whole, pairs), strict=True):
            more, some = compared(source, engines, asked, query)
            wrong += more
            taken += some
    finally:
        source.close()
    return wrong, taken


def test_each_comparison_is_postgresqls_or_refused(spark, database):
    types = {name: CORE[name] for name in FEW}
    wrong, taken = run(spark, database, types, WHOLE, pairwise((*MIXED, MIXED[0])))
    assert not wrong, f"{len(wrong)} of {len(taken)}:\n" + "\n".join(wrong)
    forms = {name: {each.form for each in taken if each.type == name} for name in FEW}
    compared_by = {"x.{c} = y.{c}", "x.{c} = {a}", "x.{c} IN ({a}, {b})"}
    assert compared_by < forms["char(5)"] & forms["uuid"] & forms["text"] & forms["mood"]
    assert {"x.{c} < y.{c}", "min({c})", "max({c})"} < forms["char(5)"] & forms["text"]
    for name in ("numeric", "interval", "jsonb", "money", "pair", "numeric(50,10)"):
        assert not forms[name] & {*OF_TWO_ROWS, *OF_A_CONSTANT, "min({c})", "max({c})"}


@pytest.mark.matrix
def test_so_is_each_of_the_other_types(spark, database):
    wrong, taken = run(spark, database, {**CORE, **MORE}, {**CORE, **MORE}, permutations(MIXED, 2))
    assert not wrong, f"{len(wrong)} of {len(taken)}:\n" + "\n".join(wrong)
