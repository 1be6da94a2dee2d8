"""Laws of the lag: a bound that holds, is as tight as what was seen allows, and needs no more."""

from hypothesis import given
from hypothesis import strategies as st

from changelog.capture.state.lag import LagClock, WalMark, WalRate, reserves
from changelog.contract.base.lsn import Lsn
from changelog.source.connect.retention import SlotStatus, SourceState

# A commit: time since what came before, and its size. A look: time, and how many of the commits
# that the log lacks it is given first.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 5_000_000), st.integers(1, 1000)),
        st.tuples(st.just("look"), st.integers(0, 5_000_000), st.integers(0, 4)),
    ),
    max_size=60,
)
SIZES = st.integers(-(1 << 40), 1 << 50)


@given(STEPS)
def test_the_lag_is_no_less_than_the_age_of_the_oldest_commit_that_is_missing(steps):
    clock = LagClock()
    marks: list[WalMark] = []
    commits = [(Lsn(1), 0)]  # end and time of each; the first is on the log
    now_us, on_log = 0, 1
    for step, apart_us, number in steps:
        now_us += apart_us
        end = commits[-1][0]
        if step == "commit":
            commits.append((Lsn(end + number), now_us))
            continue
        on_log = min(len(commits), on_log + number)
        frontier, ts_us = commits[on_log - 1]
        now = WalMark(now_us, end)
        lag_s = clock.lag_s(frontier, ts_us, now)
        clock.note(now)
        if on_log == len(commits):
            assert lag_s == 0
        else:
            assert lag_s >= (now_us - commits[on_log][1]) / 1e6
            known_us = [mark.now_us for mark in marks if mark.lsn <= frontier]
            assert lag_s == (now_us - max(ts_us, *known_us, 0)) / 1e6
        marks.append(now)


def test_of_a_steady_lag_no_more_is_remembered_than_is_needed():
    clock = LagClock()
    for number in range(10_000):
        clock.note(WalMark(number, Lsn(number)))
        clock.lag_s(Lsn(max(0, number - 10)), 0, WalMark(number, Lsn(number)))
    assert len(clock._marks) <= 12


@given(st.none() | SIZES, st.none() | SIZES, st.integers(0, 1 << 40), st.none() | st.floats(1, 1e9))
def test_the_nearest_limit_comes_first_at_the_higher_rate(safe, free, written, seconds):
    source = source_of(safe_bytes=safe, free=free, written=written, seconds=seconds)
    rate = WalRate.between(WalMark(0, Lsn(0)), source)
    found = reserves(source, rate)
    assert {each.limit for each in found} == {
        name
        for name, size in (("max_slot_wal_keep_size", safe), ("disk", free))
        if size is not None
    }
    assert [each.bytes_left for each in found] == sorted(each.bytes_left for each in found)
    highest = max(each for each in (rate.now, rate.average, 0.0) if each is not None)
    for each in found:
        if highest == 0:
            assert each.seconds_left is None
        else:
            assert each.seconds_left == max(each.bytes_left, 0) / highest


def test_without_time_between_two_observations_there_is_no_rate():
    source = source_of(safe_bytes=1, free=None, written=0, seconds=None)
    assert WalRate.between(WalMark(source.now_us, Lsn(0)), source).highest is None


def source_of(*, safe_bytes, free, written, seconds):
    slot = SlotStatus(
        name="changelog",
        active=True,
        active_pid=1,
        wal_status="reserved",
        invalidation=None,
        inactive_since=None,
        restart_lsn=Lsn(0),
        confirmed_flush_lsn=Lsn(0),
        lag_bytes=0,
        retained_bytes=0,
        safe_bytes=safe_bytes,
    )
    return SourceState(
        now_us=1_000_000,
        wal_lsn=Lsn(5000),
        slot=slot,
        keep_limit_bytes=None,
        disk_free_bytes=free,
        wal_bytes=written,
        wal_seconds=seconds,
    )
