"""Laws of the rows that take part in a change: too many are harmless, too few never happen."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type
from replay.decode.schemas import TopicSchemas
from views.project.lineage import KeyLineage, trace
from views.project.spec import SqlSource
from views.project.sql import parse_sql_view, rewritten
from views.rebuild.local.related import Walk, columns_of
from views.rebuild.local.rows import KEY
from views.rebuild.local.table import LocalTable, opened

COLUMNS = {
    "customers": ("id", "region", "name"),
    "orders": ("id", "customer", "parent", "amount"),
    "lines": ("orders_id", "no", "sku"),
}
KEYS = {"customers": ("id",), "orders": ("id",), "lines": ("orders_id", "no")}
TEXTS = {"name", "sku"}
NAMES = {name: TableName("public", name) for name in COLUMNS}
QUERIES = [
    ("id", "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer"),
    (
        "id",
        (
            "SELECT o.id, c.name, count(l.no) AS n, max(l.sku) AS sku FROM orders o "
            "JOIN customers c ON (c.id = o.customer AND c.region > 0) "
            "LEFT JOIN lines l ON l.orders_id = o.id AND l.sku > 'b' GROUP BY o.id, c.name"
        ),
    ),
    ("customer", "SELECT customer, count(*) AS n, sum(amount) AS s FROM orders GROUP BY customer"),
    (
        "name",
        (
            "SELECT c.name, count(*) AS n, max(l.sku) AS m FROM lines l, orders o, customers c "
            "WHERE l.orders_id = o.id AND o.customer = c.id AND o.amount > 1 GROUP BY c.name"
        ),
    ),
    (
        "region",
        (
            "SELECT c.region, sum(o.amount) AS s FROM customers c LEFT JOIN orders o "
            "ON c.id = o.customer GROUP BY c.region HAVING sum(o.amount) > 1"
        ),
    ),
    (
        "id",
        (
            "SELECT o.id, max(p.amount) AS m, count(*) AS n FROM orders o JOIN orders p "
            "ON o.parent = p.id GROUP BY o.id"
        ),
    ),
    (
        "id",
        (
            "SELECT o.id, count(c.id) AS n, max(p.amount) AS m FROM orders o "
            "LEFT JOIN orders p ON o.parent = p.id LEFT JOIN customers c ON c.id = p.customer "
            "GROUP BY o.id"
        ),
    ),
]


def relation(name: str) -> Relation:
    columns = [
        Column(each, column_type("text", "text") if each in TEXTS else column_type("int4", "int4"))
        for each in COLUMNS[name]
    ]
    return Relation(1, NAMES[name], tuple(columns), KEYS[name])


RELATIONS = {name: relation(name) for name in COLUMNS}
CODECS = {
    name: RowCodec(found, key_schema_id=1, value_schema_id=2) for name, found in RELATIONS.items()
}
SCHEMAS = {
    name: TopicSchemas(name, 1, {2: value_schema(found)}, 2, key=key_schema(found))
    for name, found in RELATIONS.items()
}
small = st.one_of(st.none(), st.integers(0, 3))
text = st.one_of(st.none(), st.sampled_from("abcd"))


def by_key(name: str, rows: list[tuple]) -> dict[tuple, tuple]:
    places = [COLUMNS[name].index(each) for each in KEYS[name]]
    return {tuple(row[place] for place in places): row for row in rows}


def rows_of(name: str):
    values = {each: text if each in TEXTS else small for each in COLUMNS[name]}
    values |= {each: st.integers(0, 4) for each in KEYS[name]}
    row = st.tuples(*(values[each] for each in COLUMNS[name]))
    return st.lists(row, max_size=8).map(lambda rows: by_key(name, rows))


states = st.fixed_dictionaries({name: rows_of(name) for name in COLUMNS})
gone = st.fixed_dictionaries({name: st.sets(st.integers(0, 4), max_size=2) for name in COLUMNS})


def sent(row: tuple):
    return [None if each is None else str(each).encode() for each in row]


def record(name: str, key: tuple, row: tuple | None, offset: int):
    codec = CODECS[name]
    value = None if row is None else codec.encode_value(sent(row))
    return codec.encode_key(sent(key)), value, 0, offset


def computed(source: SqlSource, frames: dict, names: dict) -> list[tuple]:
    """Evaluate a query by DuckDB, which no code under test is part of."""
    database = duckdb.connect()
    for place, (name, rows) in frames.items():
        kinds = ", ".join(f"{c} {'TEXT' if c in TEXTS else 'INT'}" for c in COLUMNS[name])
        database.execute(f"CREATE TABLE {names[place]} ({kinds})")
        if rows:
            marks = ", ".join("?" * len(COLUMNS[name]))
            database.executemany(f"INSERT INTO {names[place]} VALUES ({marks})", list(rows))
    return database.execute(rewritten(source, names).replace("`", '"')).fetchall()


def advanced(folder: str, name: str, lineage: KeyLineage, old: dict, new: dict):
    """Return a local table brought from one state to the other."""
    table = LocalTable(
        opened(f"{folder}/{name}.sqlite"), name, SCHEMAS[name], columns_of(lineage)[NAMES[name]]
    )
    rows = old.items()
    table.fill((record(name, k, r, n) for n, (k, r) in enumerate(rows)), Position(1, Lsn(1), 0))
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    touched = table.advance(
        (record(name, key, new.get(key), 100 + n) for n, key in enumerate(changed)),
        Position(1, Lsn(2), 0),
    )
    return table, touched


def is_enough(
    query: tuple[str, str],
    old: dict,
    more: dict,
    without: dict,
    *,
    walk=Walk,
    is_held: bool = True,
) -> bool:
    """Tell whether the affected keys can be computed from the rows that were found."""
    key, sql = query
    spec = parse_sql_view("v", Path("v.sql"), f"-- key: {key}\n{sql}")
    source = spec.source
    assert isinstance(source, SqlSource)
    lineage = trace(
        source, [key],
        {NAMES[n]: list(c) for n, c in COLUMNS.items()}, {NAMES[n]: k for n, k in KEYS.items()},
    )  # fmt: skip
    assert isinstance(lineage, KeyLineage), lineage
    used = [name for name in COLUMNS if NAMES[name] in spec.tables]
    new = {
        name: {k: r for k, r in {**old[name], **more[name]}.items() if k[0] not in without[name]}
        for name in used
    }
    names = {place: f"p{number}" for number, place in enumerate(lineage.names)}
    with TemporaryDirectory() as folder, ExitStack() as closed:
        brought = {name: advanced(folder, name, lineage, old[name], new[name]) for name in used}
        tables = {NAMES[name]: table for name, (table, _) in brought.items()}
        for table in tables.values():
            closed.callback(table.close)
        touched = {NAMES[name]: each for name, (_, each) in brought.items()}
        wanted = dict.fromkeys(lineage.names, (KEY,))
        with pytest.MonkeyPatch.context() as patched:
            if not is_held:
                patched.setattr("views.rebuild.local.table.MOST_WHOLE", -1)
            found = walk(lineage, tables, touched, wanted, 10_000).related()
        keys = set(found.affected[lineage.origins[0].column].to_pylist())
        by_record = {
            name: {record(name, k, None, 0)[0]: r for k, r in new[name].items()} for name in used
        }
        taken = {
            place: (
                place.table.table,
                [by_record[place.table.table][key] for key in rows[KEY].to_pylist()],
            )
            for place, rows in found.rows.items()
        }
    whole = [
        computed(
            source,
            {p: (p.table.table, list(state[p.table.table].values())) for p in lineage.names}, names,
        )
        for state in (old, new)
    ]  # fmt: skip
    before, after = ({r[0]: r for r in rows if r[0] is not None} for rows in whole)
    differ = {k for k in {**before, **after} if before.get(k) != after.get(k)}
    some = {r[0]: r for r in computed(source, taken, names)}
    return differ <= keys and all(some.get(k) == after.get(k) for k in keys - {None})


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(QUERIES), states, states, gone, st.booleans())
def test_the_rows_that_are_found_give_every_affected_key(query, old, more, without, is_held):
    assert is_enough(query, old, more, without, is_held=is_held)


class NewAlone(Walk):
    """The defect: where rows were is not looked at."""

    def __init__(self, lineage, tables, touched, used, most):
        now = {table: replace(each, older=()) for table, each in touched.items()}
        super().__init__(lineage, tables, now, used, most)


def test_twin_what_rows_were_is_asked_for():
    old = {
        "customers": {(1,): (1, 1, "a"), (2,): (2, 1, "b")},
        "orders": {(1,): (1, 1, None, 2)},
        "lines": {},
    }
    more = {"customers": {}, "orders": {(1,): (1, 2, None, 2)}, "lines": {}}
    none: dict[str, set] = {name: set() for name in COLUMNS}
    by_customer = QUERIES[2]
    assert is_enough(by_customer, old, more, none)
    assert not is_enough(by_customer, old, more, none, walk=NewAlone)
