"""The verifier's fold of declared logs, in DuckDB and by itself."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.declared import DeclaredLog, Order, ValueShape
from changelog.contract.rows.relation import TableName
from views.verify.log.declared import _SCHEMA, fold_statements
from views.verify.processes.scratch import fill, table_of_rows

COLUMNS = "part INTEGER, off BIGINT, step INTEGER, lsn BIGINT, kind VARCHAR, name VARCHAR, key BLOB, value BLOB, lacks VARCHAR[], begins BOOLEAN"  # noqa: E501


def folded(order: Order, *said: tuple[int, int, int | None, str, str]) -> set[tuple[str, int]]:
    """Fold (partition, offset, lsn, kind, name); returns the names that have a row, and where."""
    log = DeclaredLog(
        table=TableName("public", "t"),
        topic="t",
        shape=ValueShape.DEBEZIUM_JSON,
        key=("id",),
        order=order,
    )
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE raw ({COLUMNS})")
        rows: list[Any] = [
            (p, o, 0, lsn, kind, name, name.encode(), b"v", [], False)
            for p, o, lsn, kind, name in said
        ]
        fill(database, "raw", [table_of_rows(rows, _SCHEMA)])
        fold_statements(database, log, "raw", "left")
        found = database.execute('SELECT key, off FROM "left"').fetchall()
        return {(key.decode(), off) for key, off in found}


def test_by_offset_the_last_statement_counts_and_a_fault_hides_its_key():
    assert folded(
        Order.OFFSET,
        (0, 0, None, "row", "a"),
        (0, 1, None, "row", "b"),
        (0, 2, None, "gone", "a"),
        (0, 3, None, "fault", "b"),
        (0, 4, None, "row", "b"),
        (1, 0, None, "row", "c"),
        (1, 1, None, "tombstone", "d"),
    ) == {("b", 3), ("c", 0)}


def test_by_lsn_a_resend_changes_nothing_and_its_tombstone_neither():
    first = [(0, 0, 1, "row", "a"), (0, 1, 5, "gone", "a"), (0, 2, None, "tombstone", "a")]
    again = [(p, o + 4, lsn, kind, name) for p, o, lsn, kind, name in first]
    back = (0, 3, 9, "row", "a")
    assert folded(Order.LSN, *first) == set()
    assert folded(Order.LSN, *first, back) == {("a", 3)}
    assert folded(Order.LSN, *first, back, *again[:1]) == {("a", 3)}
    assert folded(Order.LSN, *first, back, *again) == {("a", 3)}


def test_a_tombstone_whose_delete_was_cleaned_away_counts_by_its_place():
    assert folded(Order.LSN, (0, 2, None, "tombstone", "a")) == set()
    assert folded(Order.LSN, (0, 0, 1, "row", "a"), (0, 2, None, "tombstone", "a")) == set()
    assert folded(Order.LSN, (0, 2, None, "tombstone", "a"), (0, 3, 9, "row", "a")) == {("a", 3)}


@pytest.mark.parametrize("order", list(Order))
def test_a_key_in_two_partitions_has_an_order_by_lsn_alone(order):
    said: list[tuple[int, int, int | None, str, str]] = [
        (0, 5, 1, "row", "a"),
        (1, 0, 2, "row", "a"),
    ]
    if order is Order.LSN:
        assert folded(order, *said) == {("a", 0)}
        said.append((1, 1, None, "tombstone", "a"))
    with pytest.raises(CorruptRecordError, match="two partitions"):
        folded(order, *said)
