"""The law of lineage, with DuckDB: every key whose rows differ is among those asked for."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.rows.relation import TableName
from tests.support.examples import examples
from views.project.lineage import MARK, KeyLineage, trace
from views.project.spec import SqlSource
from views.project.sql import parse_sql_view, rewritten

COLUMNS = {"a": ("id", "x", "y"), "b": ("id", "x", "y"), "c": ("id", "x", "y")}
NAMES = {name: TableName("public", name) for name in COLUMNS}
Rows = dict[int, tuple[int, int]]
CHAIN = """SELECT a.id, sum(coalesce(c.y, 7)) AS s FROM a LEFT JOIN b ON b.x = a.x
LEFT JOIN c ON c.x = coalesce(b.y, 0) GROUP BY a.id"""
QUERIES = [
    ("SELECT id, x + 1 AS z FROM a WHERE y > 0", ["id"]),
    ("SELECT x, count(*) AS n, sum(y) AS s FROM a GROUP BY x HAVING count(*) > 1", ["x"]),
    ("SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.x = b.x WHERE a.y <= b.y", ["i", "j"]),
    ("SELECT a.x, count(b.id) AS n FROM a LEFT JOIN b ON b.x = a.id GROUP BY a.x", ["x"]),
    ("SELECT a.id FROM a LEFT JOIN b ON b.x = a.x WHERE b.id IS NULL", ["id"]),
    ("SELECT one.id, two.id AS other FROM a AS one, a AS two WHERE one.x = two.y", ["id", "other"]),
    (CHAIN, ["id"]),
    ("SELECT DISTINCT b.y FROM a JOIN b USING (x) LEFT JOIN c ON c.id = b.id", ["y"]),
]


def traced(sql: str, key: list[str]) -> KeyLineage:
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {', '.join(key)}\n{sql}")
    assert isinstance(spec.source, SqlSource)
    columns = {NAMES[name]: columns for name, columns in COLUMNS.items()}
    found = trace(spec.source, key, columns, dict.fromkeys(NAMES.values(), ("id",)))
    assert isinstance(found, KeyLineage), found
    return found


_ROWS = st.dictionaries(
    st.integers(0, 4), st.tuples(st.integers(0, 3), st.integers(-1, 2)), max_size=4
)
_STATES = st.fixed_dictionaries(dict.fromkeys(COLUMNS, _ROWS))


def run(text: str) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(text.replace("`", '"'))
    assert found is not None
    return found


def values(rows: list[tuple[int, ...]], mark: bool | None = None) -> str:
    """Return a query for rows; `mark` adds the column that tells whether they are changed."""
    listed = ", ".join(COLUMNS["a"]) + (f', "{MARK}"' if mark is not None else "")
    more = "" if mark is None else f", {mark}"
    if not rows:
        ends = "WHERE false"
        return f"(SELECT * FROM (VALUES (0, 0, 0{more})) AS t({listed}) {ends})"
    each = ", ".join(f"({', '.join(map(str, row))}{more})" for row in rows)
    return f"(SELECT * FROM (VALUES {each}) AS t({listed}))"


def place_tables(text: str, tables: dict[str, str]) -> str:
    """Put queries where the text names views."""
    for view, query in tables.items():
        text = text.replace(f"`{view}`", query)
    return text


def listed(rows: Rows) -> list[tuple[int, ...]]:
    return [(key, *rest) for key, rest in rows.items()]


def evaluated(lineage: KeyLineage, state: dict[str, Rows]) -> dict[tuple[int, ...], list[tuple]]:
    """Return the view's rows by key."""
    views = {place: f"view_{place.table.table}" for place in lineage.names}
    tables = {f"view_{name}": values(listed(state[name])) for name in COLUMNS}
    text = place_tables(rewritten(lineage.source, views), tables)
    cursor = run(text)
    places = [cursor.columns.index(origin.view_column) for origin in lineage.origins]
    found: dict[tuple[int, ...], list[tuple]] = {}
    for row in sorted(cursor.fetchall(), key=str):
        found.setdefault(tuple(row[place] for place in places), []).append(row)
    return found


def asked(
    lineage: KeyLineage,
    old: dict[str, Rows],
    new: dict[str, Rows],
    *,
    forget: bool = False,
    apart: bool = False,
) -> set[tuple[int, ...]]:
    """Return the keys that a refresh would take out and compute anew.

    `apart`: each place is asked about by a query of its own.
    """
    tables: dict[str, str] = {}
    touched: dict[str, list[tuple[int, ...]]] = {}
    for name in {place.table.table for place in lineage.names}:
        was, now = old[name], new[name]
        keys = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
        before: list[tuple[int, ...]] = [
            (key, *was[key]) for key in keys if key in was and not forget
        ]
        touched[name] = before + [(key, *now[key]) for key in keys if key in now]
    changed = [place for place in lineage.names if touched[place.table.table]]
    for name, rows in touched.items():
        both = f"{values(listed(new[name]), mark=False)} UNION ALL {values(rows, mark=True)}"
        tables |= {f"view_{name}": f"({both})", f"alone_{name}": values(rows, mark=True)}
    found: set[tuple[int, ...]] = set()
    for places in [[place] for place in changed] if apart else [changed] if changed else []:
        views = {place: f"view_{place.table.table}" for place in lineage.names}
        if len(places) == 1:
            views[places[0]] = f"alone_{places[0].table.table}"
        found |= set(run(place_tables(lineage.keys_sql(places, views), tables)).fetchall())
    return found


def differing(
    lineage: KeyLineage, old: dict[str, Rows], new: dict[str, Rows]
) -> set[tuple[int, ...]]:
    before, after = evaluated(lineage, old), evaluated(lineage, new)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


@pytest.mark.parametrize(("sql", "key"), QUERIES, ids=[str(n) for n in range(len(QUERIES))])
@given(old=_STATES, new=_STATES)
@examples(6)
def test_every_key_whose_rows_differ_is_asked_for(sql, key, old, new) -> None:
    lineage = traced(sql, key)
    at_once = asked(lineage, old, new)
    assert differing(lineage, old, new) <= at_once
    assert at_once == asked(lineage, old, new, apart=True)


def test_without_what_rows_were_a_key_is_forgotten() -> None:
    lineage = traced(*QUERIES[1])
    nothing: dict[str, Rows] = {name: {} for name in COLUMNS}
    old = {**nothing, "a": {1: (1, 1), 2: (1, 1), 3: (1, 1)}}
    new = {**nothing, "a": {1: (2, 1), 2: (1, 1), 3: (1, 1)}}
    assert (1,) in differing(lineage, old, new)
    assert (1,) in asked(lineage, old, new)
    assert (1,) not in asked(lineage, old, new, forget=True)
