"""Rows that a sink says it goes without: exactly those may be missing, and not too many."""

from __future__ import annotations

import json

import duckdb
import pytest

from views.base.address import Address
from views.verify.compare.compare import Comparison
from views.verify.compare.left_out import take_left_out
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.values.types import parse_type

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
