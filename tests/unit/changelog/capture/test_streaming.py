"""When the stream stops for a frontier."""

from hypothesis import given
from hypothesis import strategies as st

from changelog.capture.loop.schedule import HELD_SHARE, MOST_INTERVALS, pause_after

SECONDS = st.floats(0, 1e4)


def test_a_frontier_that_costs_nothing_comes_at_each_interval():
    assert pause_after(0.001, 1.0) == 1.0


def test_frontiers_hold_the_stream_for_no_more_than_their_share():
    assert pause_after(0.010, 1.0) == 0.010 / HELD_SHARE


@given(SECONDS, st.floats(0.01, 100))
def test_a_rebuild_never_waits_for_more_than_some_intervals(spent_s, interval_s):
    assert interval_s <= pause_after(spent_s, interval_s) <= MOST_INTERVALS * interval_s
