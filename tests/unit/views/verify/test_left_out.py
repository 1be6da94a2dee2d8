"""Rows that a sink says it goes without: exactly those may be missing, and not too many."""

from __future__ import annotations

import json
from unittest.mock import Mock

import duckdb
import pytest

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from tests.support.builders import INTEGER
from views.base.address import Address
from views.verify import view as verifier
from views.verify.compare.compare import Comparison
from views.verify.compare.left_out import take_left_out
from views.verify.log.tables import TableState, create_view
from views.verify.processes.stages import StageTimes
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.values.types import parse_type
from views.verify.view import VerifyRequest, verify_view

COLUMNS = [(name, parse_type(kind)) for name, kind in [("id", "int"), ("day", "date")]]
KEY = ["id", "day"]


def told(*numbers: int, day: str = "2020-01-02") -> list[list[str]]:
    return [[f'[{n},"{day}"]', json.dumps({"id": n, "day": day})] for n in numbers]


def compared(
    claimed: list[list[str]], served: list[int], *, at_most: int = 3, relation: str = "TABLE"
) -> tuple[int, int, tuple[str, ...]]:
    """Compare ten rows with those that are served; returns mismatches, rows and notes."""
    location = {"url": "", "index": "v", "left_out": json.dumps(claimed)}
    with duckdb.connect() as database:
        database.execute(
            f"CREATE {relation} expected AS SELECT n::INTEGER AS id, date '2020-01-02' AS day "
            "FROM range(10) t(n)"
        )
        database.execute(
            f"CREATE TABLE served AS SELECT n::INTEGER AS id, date '2020-01-02' AS day, "
            f"NULL::VARCHAR AS {FAULT_COLUMN}, n::VARCHAR AS {ID_COLUMN} "
            "FROM unnest(?::INTEGER[]) t(n)",
            [served],
        )
        found = take_left_out(database, Address("search", location), COLUMNS, KEY, at_most=at_most)
        comparison = Comparison(
            database, expected=found.expected, served="served", columns=COLUMNS, key=KEY
        )
        mismatches, expected = comparison.run()
        return mismatches + found.false, expected, found.notes


@pytest.mark.parametrize("relation", ["TABLE", "VIEW"])
def test_exactly_those_rows_may_be_missing(relation: str) -> None:
    without = [n for n in range(10) if n not in {3, 7}]
    mismatches, expected, notes = compared(told(3, 7), without, relation=relation)
    assert (mismatches, expected) == (0, 8)
    assert notes == ("2 rows that search refuses are left out",)


@pytest.mark.parametrize(
    ("claimed", "missing", "mismatches"),
    [
        pytest.param([], [3], 1, id="nobody says so"),
        pytest.param(told(3), [3, 4], 1, id="another one is missing too"),
        pytest.param(told(3), [], 1, id="it is served all the same"),
        pytest.param(told(3, 4), [3], 1, id="one of two is served"),
        pytest.param(told(77), [], 1, id="the view has no such row"),
        pytest.param(told(3, day="2020-01-03"), [3], 2, id="the key of another row"),
        pytest.param([*told(3), *told(3)], [3], 1, id="said twice"),
        pytest.param([["4", '{"id": 3, "day": "2020-01-02"}']], [3], 1, id="under another id"),
        pytest.param([["3", '{"id": "x", "day": "2020-01-02"}']], [], 1, id="in no form"),
        pytest.param(told(1, 2, 3, 4), [1, 2, 3, 4], 4, id="more than may be"),
    ],
)
def test_what_is_said_wrongly_is_a_mismatch(
    claimed: list[list[str]], missing: list[int], mismatches: int
) -> None:
    served = [n for n in range(10) if n not in missing]
    assert compared(claimed, served)[0] == mismatches


def test_nobody_is_shown_the_rows_with_the_address() -> None:
    location = {"url": "http://h", "index": "v", "left_out": json.dumps(told(3))}
    assert "left_out" not in Address("search", location).shown()


def test_a_view_that_fails_as_left_out_rows_are_looked_up_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The view is computed row by row, so its errors arise only when it is read."""
    column = LoggedColumn(field="id", column="id", type=INTEGER, nullable=False)
    state = TableState(TableName("public", "t"), "t", "state", (column,), ("id",))
    frontier = Frontier(slot="s", epoch=1, lsn=Lsn(1), ts_us=0)

    def served(database: duckdb.DuckDBPyConnection, name: str, *_: object) -> int:
        database.execute(
            f"CREATE TABLE {name} AS SELECT 1 AS id, NULL::VARCHAR AS {FAULT_COLUMN}, "
            f"'1' AS {ID_COLUMN}"
        )
        return 1

    monkeypatch.setattr(verifier, "read_served", served)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE state AS SELECT n::INTEGER AS id FROM range(5) r(n)")
        create_view(database, state)
        evidence = Mock(database=database, stages=StageTimes(), frontier=frontier)
        evidence.state.return_value = state
        evidence.taken.return_value = None
        evidence.left_out.return_value = 0
        evidence.is_declared.return_value = False
        location = {"url": "", "index": "v", "left_out": '[["[3]", "{\\"id\\": 3}"]]'}
        request = VerifyRequest(
            kafka=KafkaConnection(brokers="127.0.0.1:1"),
            registry=RegistryConnection(url="http://127.0.0.1:1"),
            frontier=frontier,
            view="v",
            tables=(state.table,),
            sql="SELECT id FROM t WHERE id * 2147483647 > id",
            key=("id",),
            schema=(("id", "int"),),
            address=Address("search", location),
            left_out_at_most=1,
        )
        report = verify_view(request, evidence)
    assert report.verified is None
    assert "Overflow" in report.notes[0]
