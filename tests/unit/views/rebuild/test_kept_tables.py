"""The tables of a follower that a start goes on from: whole and as they were written, or not."""

import sqlite3
from dataclasses import replace

import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, value_schema
from replay.base.config import ReplaySettings
from replay.decode.schemas import TopicSchemas
from replay.store.increment import HeldTables
from tests.support.builders import INTEGER, TEXT, make_relation
from tests.unit.replay.states import IDLE, RECORD
from views.rebuild.local.kept import (
    KeptView,
    LocalTables,
    UnfitError,
    place_of,
    remove_of,
    stand_of,
    stand_text,
)

THINGS = TableName("public", "things")
RELATION = make_relation({"id": INTEGER, "name": TEXT}, key=("id",))
SCHEMAS = TopicSchemas("things", 7, {8: value_schema(RELATION)}, 8, key=key_schema(RELATION))
CODEC = RowCodec(RELATION, key_schema_id=7, value_schema_id=8)
HELD = HeldTables(
    record=RECORD, topics={THINGS: "things"}, schemas={THINGS: SCHEMAS}, states={"things": IDLE}
)
VIEW = KeptView(
    generation=1, definition="d", declaration={"text": "t"}, schema="{}",
    columns=(("id", "int"),), sinks={"cache": None},
)  # fmt: skip
COLUMNS = {THINGS: ["id", "name"]}


def at(number: int) -> Position:
    return Position(1, Lsn(1000 + number), 0)


def record(key: int, name: str | None, offset: int):
    raw = str(key).encode()
    value = None if name is None else CODEC.encode_value((raw, name.encode()))
    return raw, value, 0, offset


def held(number: int) -> HeldTables:
    frontier = replace(RECORD.frontier, lsn=Lsn(1000 + number))
    return replace(HELD, record=replace(RECORD, frontier=frontier))


@pytest.fixture
def path(tmp_path):
    found = place_of(str(tmp_path), ["v"])
    assert found is not None
    return found


@pytest.fixture
def written(path):
    """Three rows, and two rounds behind: one row changed twice, one came, one went."""
    with LocalTables() as tables:
        tables.begin(path)
        rows = [record(1, "one", 1), record(2, "two", 2), record(3, "three", 3)]
        tables.fill(THINGS, rows, SCHEMAS, COLUMNS[THINGS], at(0))
        tables.keep({"v": VIEW}, HELD, at(0))
        tables.advance({THINGS: [record(1, "uno", 4), record(4, "four", 5)]}, at(1), held(1))
        tables.advance({THINGS: [record(1, "ein", 6), record(2, None, 7)]}, at(2), held(2))
    return path


def resumed(path) -> LocalTables:
    tables = LocalTables()
    assert tables.open(path) == {"v": replace(VIEW, columns=[("id", "int")])}
    assert tables.adopt({THINGS: SCHEMAS}, COLUMNS).position == at(2)
    return tables


def names(tables, records=None):
    rows = tables.held[THINGS].of_keys([b"1", b"2", b"3", b"4"]) if records is None else records
    return sorted(row.values for row in rows)


def test_a_start_finds_the_rows_and_all_that_some_sink_may_show(written):
    with resumed(written) as tables:
        assert names(tables) == [(1, "ein"), (3, "three"), (4, "four")]
        touched = tables.since(at(0))[THINGS]
        assert names(tables, touched.older) == [(1, "one"), (1, "uno"), (2, "two")]
        assert names(tables, touched.newer) == [(1, "ein"), (4, "four")]
        assert names(tables, tables.since(at(1))[THINGS].older) == [(1, "uno"), (2, "two")]
        with tables.as_before(at(0)):
            assert names(tables) == [(1, "one"), (2, "two"), (3, "three")]
            assert tables.held[THINGS].whole(["name"])["name"].to_pylist() == [
                "one",
                "two",
                "three",
            ]
        assert names(tables) == [(1, "ein"), (3, "three"), (4, "four")]
        with tables.as_before(at(1)):
            assert names(tables) == [(1, "uno"), (2, "two"), (3, "three"), (4, "four")]
        tables.advance({THINGS: [record(3, None, 8)]}, at(3), held(3))
    with LocalTables() as tables:
        tables.open(written)
        assert tables.adopt({THINGS: SCHEMAS}, COLUMNS).position == at(3)
        assert names(tables) == [(1, "ein"), (4, "four")]


def test_a_sink_is_where_a_round_was_or_is_not_known(written):
    with resumed(written) as tables:
        lacks = tables.lacks_from
        assert lacks([THINGS], at(2), None) is None
        assert lacks([THINGS], at(1), None) == at(1)
        assert lacks([THINGS], None, None) == at(0), "it has not been sent anything since"
        assert lacks([THINGS], at(-5), str(at(-5))) == at(0), "its table rested for long"
        for told, begun, why in (
            (at(3), None, "further than"),
            (at(-5), None, "none of its rounds"),
            (None, str(at(0)), "does not say"),
        ):
            with pytest.raises(UnfitError, match=why):
                lacks([THINGS], told, begun)
        tables.reached(at(1))
        with pytest.raises(UnfitError, match="none of its rounds"):
            lacks([THINGS], at(0), None)
    with resumed(written) as tables:
        assert names(tables, tables.since(at(1))[THINGS].older) == [(1, "uno"), (2, "two")]
        tables.reached(at(2))
    with resumed(written) as tables:
        assert tables.lacks_from([THINGS], at(2), None) is None


def test_a_place_in_the_log_is_read_as_it_was_written():
    text = stand_text(HELD)
    assert stand_of(text, HELD.topics, HELD.schemas, ReplaySettings()) == HELD
    with pytest.raises(UnfitError, match="place in the log"):
        stand_of(text.replace('"offset"', '"other"'), HELD.topics, HELD.schemas, ReplaySettings())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE table1 SET value = (SELECT value FROM table1 WHERE key = x'31') WHERE key = x'33'",
        "UPDATE table1 SET c1 = 'drei' WHERE key = x'33'",
        "UPDATE table1 SET offset = 9 WHERE key = x'33'",
        "DELETE FROM table1 WHERE key = x'33'",
        "DELETE FROM journal WHERE key = x'32'",
        "UPDATE journal SET value = (SELECT value FROM table1) WHERE key = x'32'",
        "UPDATE journal SET key = x'35' WHERE value IS NULL",
        "DELETE FROM rounds",
        "DROP TABLE journal",
        "UPDATE facts SET value = '0' WHERE name = 'version'",
        "DELETE FROM facts WHERE name = 'tables'",
        "DROP TABLE facts",
    ],
)
def test_what_is_not_as_it_was_written_is_not_gone_on_from(written, statement):
    with sqlite3.connect(written, isolation_level=None) as database:
        assert database.execute(statement).rowcount
    database.close()
    with LocalTables() as tables, pytest.raises(UnfitError):  # noqa: PT012 - either may see it
        tables.open(written)
        tables.adopt({THINGS: SCHEMAS}, COLUMNS)


def test_a_file_that_is_cut_is_not_gone_on_from(written):
    whole = written.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 4096):
        written.write_bytes(whole[:length])
        with LocalTables() as tables, pytest.raises(UnfitError):  # noqa: PT012 - either may see it
            tables.open(written)
            tables.adopt({THINGS: SCHEMAS}, COLUMNS)


def test_rows_that_are_found_otherwise_are_not_gone_on_from(written):
    with LocalTables() as tables:
        tables.open(written)
        with pytest.raises(UnfitError, match="by other columns"):
            tables.adopt({THINGS: SCHEMAS}, {THINGS: ["id"]})


def test_a_round_that_breaks_off_is_not_there(written):
    with resumed(written) as tables:
        bad = (b"9", b"\0", 0, 9)
        with pytest.raises(Exception, match="cannot be read"):
            tables.advance({THINGS: [record(3, None, 8), bad]}, at(3), held(3))
    with resumed(written) as tables:
        assert names(tables) == [(1, "ein"), (3, "three"), (4, "four")]


def test_what_was_kept_of_views_goes_with_them(written, tmp_path):
    remove_of(str(tmp_path), ["w"])
    assert written.exists()
    remove_of(str(tmp_path), ["w", "v"])
    assert {left.suffix for left in written.parent.iterdir()} == {".lock"}
    assert place_of("s3://bucket/warehouse", ["v"]) is None
    assert place_of(f"file://{tmp_path}", ["v"]) == written


def test_a_second_process_leaves_it_to_the_first(written, tmp_path, caplog):
    with resumed(written) as tables, LocalTables() as second:
        with pytest.raises(UnfitError, match="another process has it open"):
            second.open(written)
        remove_of(str(tmp_path), ["v"])
        assert written.exists()
        assert second.begin(written) is False
        assert "another process has" in caplog.text
        second.fill(THINGS, [record(7, "seven", 1)], SCHEMAS, COLUMNS[THINGS], at(0))
        tables.advance({THINGS: [record(3, None, 8)]}, at(3), held(3))
        assert names(tables) == [(1, "ein"), (4, "four")]
    with LocalTables() as third:
        third.open(written)
        assert third.adopt({THINGS: SCHEMAS}, COLUMNS).position == at(3)


def test_what_is_discarded_is_gone_and_the_process_goes_on(written):
    with resumed(written) as tables:
        tables.discard()
        assert not written.exists()
        tables.advance({THINGS: [record(3, None, 8)]}, at(3), held(3))
        assert names(tables) == [(1, "ein"), (4, "four")]
