"""Laws of changes: brought to the state at their beginning they give the state at their end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.local.changes import ChangeType, changes_of, once, touched
from replay.local.records import Last, RecordVersion

KEYS = [b"a", b"b", b"c"]


@st.composite
def written(draw):
    """Return records of some keys, in the order of their offsets: some are sent again."""
    made: list[RecordVersion] = []
    for number in range(draw(st.integers(0, 12))):
        value = draw(st.none() | st.sampled_from([b"1", b"2"]))
        op = Op.DELETE if value is None else draw(st.sampled_from([Op.CREATE, Op.UPDATE, Op.READ]))
        made.append(_version(draw(st.sampled_from(KEYS)), value, op, number))
        if draw(st.booleans()):
            again = draw(st.sampled_from(made))
            made.append(again)
    return [_at(each, offset) for offset, each in enumerate(made)]


def _version(key, value, op, number) -> RecordVersion:
    return RecordVersion(
        key=key,
        value=value,
        position=Position(1, Lsn(100 + number), 0),
        op=op,
        ts_us=number,
        appended_ms=0,
        partition=0,
        offset=0,
    )


def _at(record: RecordVersion, offset: int) -> RecordVersion:
    return RecordVersion(
        key=record.key,
        value=record.value,
        position=record.position,
        op=record.op,
        ts_us=record.ts_us,
        appended_ms=0,
        partition=0,
        offset=offset,
    )


def _state(records) -> dict[bytes, Last]:
    """Return the last record of each key: the model."""
    last: dict[bytes, Last] = {}
    for each in sorted(records, key=lambda each: (each.position, each.offset)):
        position = each.position.to_bytes()
        last[each.key] = Last(each.key, position, each.value, 0, each.offset)
    return {key: each for key, each in last.items() if each.value is not None}


@given(written(), st.integers(0, 12))
def test_changes_bring_one_state_to_the_next(records, cut):
    since = Position(1, Lsn(100 + cut), 0)
    old = [each for each in records if each.position < since]
    before, after = _state(old), _state(records)
    found = touched(records, since)
    state = {key: each.value for key, each in before.items()}
    by_row = {(each.partition, each.offset): each.key for each in records}
    open_update: bytes | None = None
    changes = changes_of({key: before[key] for key in found if key in before}, found)
    for change in changes:
        key = by_row[change.row.partition, change.row.offset]
        match change.kind:
            case ChangeType.INSERT:
                assert key not in state
                state[key] = change.row.value
            case ChangeType.UPDATE_PREIMAGE:
                assert state[key] == change.row.value
                open_update = key
            case ChangeType.UPDATE_POSTIMAGE:
                assert open_update == key
                state[key], open_update = change.row.value, None
            case ChangeType.DELETE:
                assert state.pop(key) == change.row.value
    assert open_update is None
    assert state == {key: each.value for key, each in after.items()}
    assert [each.position for each in changes] == sorted(each.position for each in changes)


def test_a_row_that_was_copied_anew_and_is_the_same_is_no_change():
    base = _state([_version(b"a", b"1", Op.CREATE, 0)])
    again = _version(b"a", b"1", Op.READ, 1)
    assert changes_of(base, {b"a": [again]}) == []
    other = _version(b"a", b"2", Op.READ, 1)
    assert [each.kind for each in changes_of(base, {b"a": [other]})] == [
        ChangeType.UPDATE_PREIMAGE,
        ChangeType.UPDATE_POSTIMAGE,
    ]


def test_an_event_of_a_delete_ends_a_row_as_its_tombstone_does():
    base = _state([_version(b"a", b"1", Op.CREATE, 0)])
    event = _version(b"a", b"the event", Op.DELETE, 1)
    tombstone = _version(b"a", None, Op.DELETE, 1)
    for records in ([event, tombstone], [event], [tombstone]):
        (change,) = changes_of(base, {b"a": records})
        assert (change.kind, change.row.value) == (ChangeType.DELETE, b"1")


def test_of_records_of_one_position_the_last_decides_as_in_the_fold():
    records = [_at(_version(b"a", value, Op.CREATE, 1), n) for n, value in enumerate((b"1", b"2"))]
    (change,) = changes_of({}, {b"a": records})
    assert (change.kind, change.row.value) == (ChangeType.INSERT, b"2")
    assert [each.offset for each in once(records)] == [1]
