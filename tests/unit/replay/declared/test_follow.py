"""What a follower holds of a declared log, and what it takes for sure of what came since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    DeclaredLog,
    Order,
    ValueShape,
    declared_columns,
)
from changelog.contract.rows.relation import TableName
from replay.declared import follow
from tests.support.declared_memory import COMPACT, Following, MemoryLog

FLAT = DeclaredLog(
    table=TableName("public", "things"),
    topic="things",
    shape=ValueShape.FLAT_JSON,
    key=("id",),
    columns=declared_columns({"id": "int", "name": "string", "n": "int"}, "logs.things"),
)
DEBEZIUM = replace(FLAT, shape=ValueShape.DEBEZIUM_JSON)


def row(number: int, name: str | None, n: int = 0) -> dict[str, object]:
    return {"id": number, "name": name, "n": n}


def held(following: Following) -> dict[str, list[object]]:
    encoder = following.followed._encoder
    return {key.decode(): encoder.decode(value)[1:] for key, value in following.rows.items()}


def begun(log: MemoryLog) -> Following:
    following = log.follow()
    following.begin(log.cut())
    return following


def placed(lsn: int, op: str, number: int, name: str | None = None) -> dict[str, object]:
    after = None if op == "d" else row(number, name)
    return {"op": op, "before": {"id": number}, "after": after, "source": {"lsn": lsn}}


BY_LSN = replace(DEBEZIUM, order=Order.LSN)


def test_what_is_sent_again_is_taken_at_the_beginning_and_refused_afterwards():
    log = MemoryLog(BY_LSN)
    for _ in range(2):
        log.put({"id": 1}, placed(10, "c", 1, "a"))
        log.put({"id": 1}, placed(20, "u", 1, "b"))
        log.put({"id": 2}, placed(11, "c", 2, "a"))
        log.put({"id": 2}, placed(21, "d", 2))
        log.put({"id": 2}, None)
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    log.put({"id": 2}, placed(11, "c", 2, "a"))
    following = begun(log)
    assert held(following) == {"[1]": ["b", 0]}
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    with pytest.raises(VerdictError, match="says at position 10"):
        following.advance(log.cut())


def test_a_tombstone_whose_delete_was_sent_again_before_the_cut_is_not_judged_here():
    log = MemoryLog(BY_LSN)
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    log.put({"id": 1}, placed(15, "d", 1))
    log.put({"id": 1}, None)
    log.put({"id": 1}, placed(20, "c", 1, "back"))
    log.put({"id": 1}, placed(15, "d", 1))
    following = begun(log)
    log.put({"id": 1}, None)
    with pytest.raises(VerdictError, match="a delete that was sent again"):
        following.advance(log.cut())
    assert held(begun(log)) == {"[1]": ["back", 0]}
    log.put({"id": 1}, placed(21, "u", 1, "newer"))
    log.put({"id": 1}, None)
    assert held(begun(log)) == {}


def test_an_older_event_may_have_what_a_newer_one_lacks():
    log = MemoryLog(BY_LSN)
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    log.put({"id": 1}, placed(30, "u", 1, PLACEHOLDER))
    log.put({"id": 1}, placed(40, "u", 1, PLACEHOLDER))
    assert held(begun(log)) == {"[1]": ["a", 0]}
    # What is sent again has nothing that was not there before.
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    log.put({"id": 1}, placed(30, "u", 1, PLACEHOLDER))
    assert held(begun(log)) == {"[1]": ["a", 0]}
    log.put({"id": 1}, placed(20, "u", 1, "b"))
    with pytest.raises(VerdictError, match="lacks what it may have"):
        begun(log)


def test_an_older_event_behind_a_tombstone_of_its_own_is_not_judged_here():
    log = MemoryLog(BY_LSN)
    log.put({"id": 1}, placed(10, "c", 1, "a"))
    log.put({"id": 1}, None)
    assert held(begun(log)) == {}
    log.put({"id": 1}, placed(5, "u", 1, "older"))
    with pytest.raises(VerdictError, match="says at position 5"):
        begun(log)


@pytest.mark.parametrize("first", [row(1, "a"), None])
def test_a_key_in_two_partitions_is_refused_at_once_and_later(first):
    log = MemoryLog(FLAT, partitions=2)
    log.put({"id": 1}, first, 0)
    following = begun(log)
    log.put({"id": 1}, row(1, "b"), 1)
    with pytest.raises(VerdictError, match="stands in partitions 0 and 1"):
        following.advance(log.cut())
    with pytest.raises(VerdictError, match="stands in partitions 0 and 1"):
        begun(log)
    twin = MemoryLog(FLAT, partitions=2)
    later = begun(twin)
    twin.put({"id": 1}, first, 0)
    twin.put({"id": 1}, None, 1)
    with pytest.raises(VerdictError, match="stands in partitions 0 and 1"):
        later.advance(twin.cut())


def test_the_partition_of_a_key_that_died_in_a_round_is_remembered():
    log = MemoryLog(FLAT, partitions=2)
    following = begun(log)
    log.put({"id": 1}, row(1, "a"), 0)
    following.advance(log.cut())
    log.put({"id": 1}, None, 0)
    following.advance(log.cut())
    log.put({"id": 1}, row(1, "a"), 1)
    with pytest.raises(VerdictError, match="stands in partitions 0 and 1"):
        following.advance(log.cut())


@pytest.mark.parametrize("bad", [b"{", {"id": 2, "name": "a", "n": "x"}])
def test_a_record_at_fault_is_refused(bad):
    log = MemoryLog(FLAT)
    following = begun(log)
    log.put({"id": 2}, bad)
    log.put({"id": 2}, row(2, "mended"))
    with pytest.raises(VerdictError, match='topic "things", partition 0, offset 0'):
        following.advance(log.cut())
    with pytest.raises(VerdictError, match='topic "things", partition 0, offset 0'):
        begun(log)


def event(op: str, number: int, name: str | None, n: int = 0) -> dict[str, object]:
    return {"op": op, "after": row(number, name, n)}


@pytest.mark.parametrize(
    "before",
    [
        [],
        [({"id": 1}, event("d", 1, None) | {"before": {"id": 1}})],
        [({"id": 1}, None)],
        [({"id": 1}, event("c", 1, PLACEHOLDER))],
    ],
)
def test_a_value_of_another_row_is_not_taken(before):
    log = MemoryLog(DEBEZIUM)
    if before:
        log.put({"id": 1}, event("c", 1, "a"))
    for each in before:
        log.put(*each)
    log.put({"id": 1}, event("u", 1, PLACEHOLDER))
    with pytest.raises(VerdictError, match="left out a value"):
        begun(log)


@pytest.mark.parametrize(
    ("settings", "passed_ms", "is_sure"),
    [
        (COMPACT, 54_000, True),
        (COMPACT, 55_000, False),
        ({**COMPACT, "message.timestamp.type": "CreateTime"}, 0, False),
        ({**COMPACT, "min.compaction.lag.ms": "0"}, 0, False),
        ({"cleanup.policy": "delete"}, 10**12, True),
    ],
)
def test_an_offset_without_a_record_is_a_mark_only_where_nothing_can_be_cleaned(
    settings, passed_ms, is_sure
):
    log = MemoryLog(FLAT, settings=settings)
    following = begun(log)
    log.put({"id": 1}, row(1, "a"))
    log.put({"id": 2}, row(2, "b"))
    log.now_ms += passed_ms
    log.gone.add((0, 1))
    if not is_sure:
        with pytest.raises(VerdictError, match="offsets hold no record"):
            following.advance(log.cut())
        assert following.rows == {}
        log.gone.clear()
        assert following.advance(log.cut()) == {b"[1]", b"[2]"}, "all are there: it is whole"
    else:
        assert following.advance(log.cut()) == {b"[1]"}


def test_a_gap_behind_a_transaction_that_was_open_has_no_known_age():
    log = MemoryLog(FLAT, settings=COMPACT)
    log.put({"id": 1}, row(1, "a"))
    log.put({"id": 2}, row(2, "b"))
    following = log.follow()
    following.begin(log.cut([1]))
    log.gone.add((0, 1))
    with pytest.raises(VerdictError, match="a transaction was open"):
        following.advance(log.cut())


@pytest.mark.parametrize(
    "changes",
    [
        {"topic_id": "other"},
        {"log_starts": (1,)},
        {"ends": (3, 3), "log_starts": (0, 0), "leader_epochs": (0, 0)},
        {"leader_epochs": (1,)},
        {"settings": COMPACT},
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_topic_that_is_another_is_refused_before_and_behind_the_read(changes, is_late):
    log = MemoryLog(FLAT)
    following = begun(log)
    log.put({"id": 1}, row(1, "a"))
    cut = log.cut()
    log.changes = changes
    with pytest.raises(VerdictError, match="the log changed while its rows were held"):
        following.advance(cut if is_late else log.cut([1]))


def test_what_ends_before_what_is_held_or_is_too_much_is_refused(monkeypatch):
    log = MemoryLog(FLAT)
    empty = log.cut()
    with pytest.raises(VerdictError, match="no rows are held"):
        log.follow().advance(empty)
    for number in range(3):
        log.put({"id": number}, row(number, "a"))
    following = begun(log)
    with pytest.raises(VerdictError, match="ends before what is held"):
        following.advance(log.cut([2]))
    monkeypatch.setattr(follow, "MOST_RECORDS", 2)
    with pytest.raises(VerdictError, match="more than 2 records"):
        begun(log)
