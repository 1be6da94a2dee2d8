"""Rows of DuckDB are hashed as PostgreSQL hashes them: its own server is the judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

import duckdb
import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from changelog.compare import duckdb_side
from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.report import Report

SCALES = (0, 1, 3, 4, 5, 8, 19, 37, 38)
UNSCALED = [
    *(0, 1, -1, 9, 10, -10, 9999, 10000, 10001, 99_990_000, -12_340_000, 2**63 - 1, -(2**63)),
    *(2**64 - 1, 2**64, 10**19, 10**37, 10**38 - 1, 1 - 10**38, 5 * 10**37, 10**16 + 10**8),
]
EDGES = {
    "bigint": ["9223372036854775807", "-9223372036854775808", "0", "-1"],
    "smallint": ["32767", "-32768"],
    "boolean": ["true", "false"],
    "real": ["NaN", "-NaN", "-0.0", "0", "1e-45", "3.4028235e38", "-Infinity"],
    "double precision": ["NaN", "-NaN", "-0.0", "0", "5e-324", "1.7976931348623157e308", "inf"],
    "text": ["", " ", "e\u0301", "é🙂", "NULL", "x" * 300],
    "bytea": ["", "\\x00ff", "\\x5c78"],
    "date": ["infinity", "-infinity", "1999-12-31", "2000-01-01", "0001-01-01 BC", "9999-12-31"],
    "timestamp": [
        *("infinity", "-infinity", "1999-12-31 23:59:59.999999", "2000-01-01 00:00:00"),
        *("0044-03-15 12:00:00 BC", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    ],
    "timestamptz": ["infinity", "-infinity", "1969-12-31 23:59:59.9+00", "2024-02-29 12:00+02"],
}
"""Values by their type in PostgreSQL, whose names DuckDB knows; texts as PostgreSQL reads them."""
Rows = Sequence[Sequence[str | None]]


class World:
    """Tables of PostgreSQL, and copies of them in files of DuckDB."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder, self.tables = dsn, folder, 0

    def compared(self, kinds: Sequence[str], rows: Rows, copied: Rows | None = None) -> Report:
        """Compare rows of some types with the rows of the copy, by default the same."""
        self.tables += 1
        name, file = f"t{self.tables}", self.folder / f"{self.tables}.duckdb"
        listed = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
        marks = ", ".join("?" for _ in kinds)
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, {listed})")
            for number, row in enumerate(rows):
                filled = f"INSERT INTO {name} VALUES ({number}, {marks})".replace("?", "%s")
                cursor.execute(filled, [*row])
            connection.commit()
        with closing(duckdb.connect(str(file))) as database:
            database.execute("SET TimeZone = 'UTC'")
            database.execute(f"CREATE TABLE t (id BIGINT, {listed})")
            for number, row in enumerate(rows if copied is None else copied):
                values = [*map(in_duckdb, row, kinds)]
                database.execute(f"INSERT INTO t VALUES ({number}, {marks})", values)
        with (
            closing(PostgresSide(self.dsn, ComparedRelation(table=name), of="source")) as own,
            closing(open_target(parse_target(f"duckdb:{file}/t"), name, Path())) as copy,
        ):
            return compare(own, copy, CompareRequest(settle_s=0.0))


def in_duckdb(text: str | None, kind: str) -> object:
    """Return a value as DuckDB takes it."""
    if text is None or kind == "text":
        return text
    if kind == "bytea":
        return bytes.fromhex(text.removeprefix("\\x"))
    moment, era, _ = text.partition(" BC")
    day, blank, time = moment.partition(" ")
    return f"{day} (BC){blank}{time}" if era else text


def edge_rows() -> Rows:
    """Return rows with all edges; shorter columns are filled with nulls."""
    return [*zip_longest(*EDGES.values())]


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a number with as many digits after its point, without an exponent."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return "-" * (unscaled < 0) + whole + "." * (scale > 0) + part


@pytest.fixture
def world(dsn, tmp_path):
    return World(dsn, tmp_path)


@pytest.fixture(params=["hashes", "texts"])
def by(request, monkeypatch):
    """By hashes, and by the digests of texts, which a server older than PostgreSQL 14 gets."""
    if request.param == "texts":
        monkeypatch.setattr(duckdb_side.DuckdbSide, "sent_probe", lambda self: None)
    return request.param


def test_the_edges_of_each_type_are_equal_by_digests_alone(world, by):
    report = world.compared([*EDGES], edge_rows())
    assert (report.mismatches, report.looks) == (0, 0), report.lines()
    assert report.plan.hashes is (by == "hashes")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(1 - 10**38, 10**38 - 1), max_size=30).map(UNSCALED.__add__))
def test_decimals_of_every_scale_are_equal_by_digests_alone(world, numbers):
    kinds = [f"decimal(38,{scale})" for scale in SCALES]
    rows = [[decimal_text(number, scale) for scale in SCALES] for number in numbers]
    report = world.compared(kinds, rows)
    assert report.plan.hashes
    assert (report.mismatches, report.looks) == (0, 0), report.lines()


def test_twin_decimals_of_another_scale(world, monkeypatch):
    """As if decimals had another scale: every row is looked at, and none differs."""
    monkeypatch.setattr(duckdb_side, "scale_of", lambda native: 2)
    report = world.compared(["decimal(10,1)"], [["1.5"], ["-20.5"]])
    assert (report.mismatches, report.looks > 0) == (0, True)


@pytest.mark.parametrize("kind", [*EDGES])
def test_a_value_that_differs_is_told(world, by, kind):
    one, other = EDGES[kind][0], EDGES[kind][-1]
    copied = [[other], [other], [one], [None]]
    report = world.compared([kind], [[one], [other], [None], [one]], copied)
    assert sorted(int(key[0] or 0) for key in report.refuted) == [0, 2, 3]
