"""Laws of the verifier's fold: it is the last record by position, whatever else happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.native.columns import NO_EPOCH, SCHEMA
from views.verify.records import survivors as folding
from views.verify.records.survivors import SurvivorRules, fold

Record = tuple[Position, int, int | None]
"""Position, key, value; None is a tombstone."""

positions = st.builds(
    lambda epoch, lsn, sequence: Position(epoch, Lsn(lsn), sequence),
    st.integers(1, 2),
    st.integers(0, 6) | st.just(2**64 - 1),
    st.integers(0, 3),
)
logs = st.lists(
    st.tuples(positions, st.integers(0, 4), st.none() | st.integers(0, 9)),
    max_size=25,
    unique_by=lambda record: record[0],
)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def folded(
    database: duckdb.DuckDBPyConnection,
    records: Sequence[Record],
    since: Position | None = None,
    before: Lsn | None = None,
) -> dict[int, int]:
    tables = [table_of(records[:3]), table_of(records[3:], first=3)]
    rules = SurvivorRules(epoch=2, since=since, before=before)
    alive = fold(database, [each for each in tables if len(each)], rules)
    found = dict(zip(alive["key"].to_pylist(), alive["value"].to_pylist(), strict=True))
    assert len(alive) == len(found)
    return {key[0]: value[0] for key, value in found.items()}


def table_of(records: Sequence[Record], first: int = 0) -> pa.Table:
    rows = [
        (0, off, *position, bytes([key]), None if value is None else bytes([value]), 0)
        for off, (position, key, value) in enumerate(records, first)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@pytest.fixture(scope="module", params=[1, 1 << 20], ids=["pieces", "at once"], autouse=True)
def piece_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folding, "_PIECE_BYTES", request.param)
        yield


def model(
    records: Sequence[Record], since: Position | None = None, before: Lsn | None = None
) -> dict[int, int]:
    state: dict[int, int | None] = {}
    for position, key, value in sorted(records, key=lambda record: record[0]):
        dead = since is not None and position < since
        later = before is not None and position.epoch == 2 and position.commit_lsn >= before
        if not dead and not later:
            state[key] = value
    return {key: value for key, value in state.items() if value is not None}


@given(logs, st.randoms(), st.none() | positions, st.none() | st.integers(0, 7).map(Lsn))
def test_fold_is_the_last_record_by_position_in_any_order(
    database: duckdb.DuckDBPyConnection, records, random, since, before
) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    assert folded(database, shuffled, since, before) == model(records, since, before)


@given(logs, st.data())
def test_records_sent_again_change_nothing(
    database: duckdb.DuckDBPyConnection, records, data
) -> None:
    again = data.draw(st.lists(st.sampled_from(records), max_size=5)) if records else []
    assert folded(database, [*records, *again]) == model(records)


@given(logs, st.data())
def test_a_legal_cleaning_changes_nothing(
    database: duckdb.DuckDBPyConnection, records, data
) -> None:
    last = {key: position for position, key, _ in sorted(records)}
    kept = [r for r in records if r[0] == last[r[1]] or data.draw(st.booleans())]
    assert folded(database, kept) == model(records)


def test_a_tombstone_before_a_resend_keeps_its_row_dead(
    database: duckdb.DuckDBPyConnection,
) -> None:
    def at(lsn: int) -> Position:
        return Position(2, Lsn(lsn), 0)

    records: list[Record] = [(at(1), 7, 1), (at(2), 8, 5), (at(3), 7, None), (at(1), 7, 1)]
    assert folded(database, records) == {8: 5}
    # The seeded defect: an aggregate that skips nulls brings the deleted row back.
    database.register("raw", table_of(records))
    revived = database.execute(
        "SELECT count(*) FROM (SELECT key, arg_max(value, (epoch, commit_lsn, sequence)) AS value "
        "FROM raw GROUP BY key) WHERE value IS NOT NULL"
    ).fetchall()
    assert revived == [(2,)]


def test_a_record_without_a_place_decides_about_its_key(
    database: duckdb.DuckDBPyConnection,
) -> None:
    sound = table_of([(Position(2, Lsn(5), 0), 7, 1), (Position(2, Lsn(6), 0), 8, None)])
    rows = [(0, 9, NO_EPOCH, 2**64 - 1, 2**64 - 1, bytes([key]), None, 3) for key in (7, 8)]
    arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    faulty = pa.Table.from_arrays(arrays, schema=SCHEMA)
    alive = fold(database, [faulty, sound], SurvivorRules(epoch=2))
    assert sorted(alive["off"].to_pylist()) == [9, 9]
    assert len(fold(database, [faulty, sound], SurvivorRules(epoch=2, before=Lsn(6)))) == 1


def test_of_two_records_in_one_place_the_later_is_taken(
    database: duckdb.DuckDBPyConnection,
) -> None:
    place = Position(2, Lsn(5), 0)
    assert folded(database, [(place, 7, 1), (place, 7, 2)]) == {7: 2}


def test_nothing_folds_to_nothing(database: duckdb.DuckDBPyConnection) -> None:
    assert len(fold(database, [], SurvivorRules(epoch=2))) == 0
