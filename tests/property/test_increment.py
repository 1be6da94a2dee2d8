"""Laws of reading on from a stored state: it gives the fold of all, whatever was cleaned."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from tests.property.test_fold import logs
from tests.support import model
from tests.support.examples import examples
from tests.support.model import Entry


def cuts(log: list[Entry]) -> list[int]:
    """Return the ends at which a frontier may stand: between two transactions."""
    return [
        end
        for end in range(len(log) + 1)
        if end in {0, len(log)} or log[end - 1].position[:2] != log[end].position[:2]
    ]


def cut_at(log: list[Entry], end: int) -> Position:
    """Return the first position past a frontier at `end`."""
    highest = max((entry.position for entry in log[:end]), default=Position(0, Lsn(0), 0))
    return Position(highest.epoch, Lsn(highest.commit_lsn + 1), 0)


def read_on(
    stored: dict[bytes, bytes], cleaned: Iterable[Entry], start: int, end: int, cut: Position
) -> dict[bytes, bytes]:
    """Fold what lies between two ends on top of a stored state, which has no tombstones."""
    last: dict[bytes, Entry] = {}
    for entry in cleaned:
        is_wanted = start <= entry.offset < end and entry.position >= cut
        if is_wanted and (entry.key not in last or entry.position > last[entry.key].position):
            last[entry.key] = entry
    state = {key: value for key, value in stored.items() if key not in last}
    return state | {key: entry.value for key, entry in last.items() if entry.value is not None}


@st.composite
def reads(draw: st.DrawFn, *, resends: bool) -> tuple[list[Entry], int, int]:
    """Draw a log and the ends of two frontiers on it."""
    log = draw(logs(resends=resends))
    first, last = sorted((draw(st.sampled_from(cuts(log))), draw(st.sampled_from(cuts(log)))))
    return log, first, last


@given(st.data())
@examples(200)
def test_reading_on_gives_what_a_whole_read_would_whatever_was_cleaned(data):
    log, first, last = data.draw(reads(resends=False))
    stored = model.fold(log[:first])
    offsets = [entry.offset for entry in log]
    chosen = st.sets(st.sampled_from(offsets)) if offsets else st.just(set())
    cleaned = log
    for _ in range(2):
        # Within the deadline no tombstone behind the stored state is gone; older ones may be.
        forgotten = {offset for offset in data.draw(chosen) if offset < first}
        end = data.draw(st.integers(0, last))
        cleaned = model.clean(cleaned, end=end, removed=data.draw(chosen), forgotten=forgotten)
    found = read_on(stored, cleaned, first, last, cut_at(log, first))
    assert found == model.fold(log[:last])


@given(st.data())
@examples(200)
def test_records_sent_again_behind_a_stored_state_change_nothing(data):
    log, first, last = data.draw(reads(resends=True))
    cut = cut_at(log, first)
    found = read_on(model.fold(log[:first]), log, first, last, cut)
    assert found == model.fold(log[:last])


def test_without_the_cut_a_record_sent_again_revives_a_row():
    put, gone = Position(1, Lsn(16), 0), Position(1, Lsn(32), 0)
    log = [Entry(0, b"a", b"1", put), Entry(1, b"a", None, gone), Entry(2, b"a", b"1", put)]
    assert read_on({}, log, 2, 3, cut_at(log, 2)) == model.fold(log) == {}
    assert read_on({}, log, 2, 3, Position(0, Lsn(0), 0)) == {b"a": b"1"}


def test_a_tombstone_that_is_gone_behind_the_stored_state_is_a_row_that_stays():
    log = [
        Entry(0, b"a", b"1", Position(1, Lsn(16), 0)),
        Entry(1, b"a", None, Position(1, Lsn(32), 0)),
    ]
    cleaned = model.clean(log, end=2, removed={0}, forgotten={1})
    assert read_on(model.fold(log[:1]), cleaned, 1, 2, cut_at(log, 1)) == {b"a": b"1"}
    assert model.fold(log) == {}
