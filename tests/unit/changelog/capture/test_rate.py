"""How fast capture may write."""

import pytest

from changelog.capture.state.rate import SAVED_S, Rate, Throttle


@pytest.mark.parametrize(
    ("rate", "rows", "size"), [(Rate(rows=100), 10, 0), (Rate(bytes=1000), 1, 100)]
)
def test_over_ten_seconds_no_more_is_written_than_is_allowed(rate, rows, size):
    clock = [0.0]
    throttle = Throttle(rate, lambda: clock[0])
    batches = 0
    while clock[0] < 10:
        clock[0] += throttle.owed_s() or 0.001
        if clock[0] < 10 and not throttle.owed_s():
            throttle.spent(rows, size)
            batches += 1
    assert 98 <= batches <= 103


def test_a_pause_is_not_followed_by_a_burst():
    clock = [0.0]
    throttle = Throttle(Rate(rows=100), lambda: clock[0])
    clock[0] = 3600.0
    throttle.spent(100, 0)
    assert throttle.owed_s() == pytest.approx(1 - SAVED_S)


def test_without_a_limit_nothing_is_owed():
    throttle = Throttle(Rate(), lambda: 0.0)
    throttle.spent(10**9, 10**12)
    assert throttle.owed_s() == 0


def test_the_greater_of_two_costs_counts_and_writers_share():
    throttle = Throttle(Rate(rows=10, bytes=1000), lambda: 0.0)
    throttle.spent(10, 5000)
    assert throttle.owed_s() == pytest.approx(5)
    assert Rate(rows=10, bytes=3).shared(2) == Rate(rows=5, bytes=1)
    assert Rate(rows=3).shared(8) == Rate(rows=1)
    assert (Rate().most(4000), Rate(rows=100).most(4000), Rate(rows=1).most(4000)) == (4000, 10, 1)
    assert (Rate(bytes=5000).most(4000), Rate(bytes=1).most(4000)) == (5, 1)
    assert Rate(rows=100, bytes=100_000_000).most(4000) == 10
    assert Rate(bytes=1 << 20).pages(8192) == 128
    assert Rate(rows=1).pages(8192) == 1
    assert Rate().pages(8192) == 8192
