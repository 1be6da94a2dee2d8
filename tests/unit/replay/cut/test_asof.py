"""Which frontier an older state is taken from; pure."""

from dataclasses import replace
from functools import partial

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from replay.cut.asof import AsOf, chosen, is_young, nearest, parse_as_of
from tests.unit.replay.states import APPENDED_MS, LAG_MS, RECORD

SECOND = 1_000


def record(number, *, lsn=None, epoch=1, end=None):
    """The number-th frontier: an LSN, a time and an end that grow with the number."""
    frontier = replace(
        RECORD.frontier,
        epoch=epoch,
        lsn=Lsn(100 * number if lsn is None else lsn),
        ts_us=number * 1_000_000,
        ends={"things": (number if end is None else end, 20)},
    )
    return replace(
        RECORD, frontier=frontier, offset=number, appended_ms=APPENDED_MS + number * SECOND
    )


RECORDS = [record(number) for number in range(1, 6)]


def offset_of(asked, records=RECORDS, *, age_ms=0):
    now_ms = records[-1].appended_ms + age_ms
    is_next = partial(is_young, lag_ms=LAG_MS, now_ms=now_ms)
    found = chosen(records, asked, ["things"], is_next=is_next)
    return found and found.offset


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        (AsOf("", lsn=Lsn(300)), 3),
        (AsOf("", lsn=Lsn(301)), 3),
        (AsOf("", lsn=Lsn(399)), 3),
        (AsOf("", lsn=Lsn(500)), 5),
        (AsOf("", lsn=Lsn(501)), None),
        (AsOf("", lsn=Lsn(99)), None),
        (AsOf("", ts_us=3_500_000), 3),
        (AsOf("", ts_us=3_000_000), 3),
        (AsOf("", ts_us=2_999_999), 2),
        (AsOf("", ts_us=9_000_000), None),
        (AsOf("", ts_us=1), None),
    ],
)
def test_the_newest_frontier_at_or_before_answers(asked, offset):
    assert offset_of(asked) == offset


def test_a_neighbour_that_may_have_removed_others_makes_an_answer_uncertain():
    between = AsOf("", lsn=Lsn(250))
    age = LAG_MS - 2 * SECOND
    assert offset_of(between, age_ms=age - 1) == 2
    assert offset_of(between, age_ms=age) is None
    assert offset_of(AsOf("", lsn=Lsn(200)), age_ms=age) == 2, "what is named exactly is certain"


def test_neighbours_without_a_record_between_them_are_certain_at_any_age():
    records = [record(1), record(2), record(3, end=2), record(4)]
    assert offset_of(AsOf("", lsn=Lsn(250)), records, age_ms=10 * LAG_MS) == 2


def test_a_frontier_of_a_capture_thought_dead_is_no_answer():
    records = [*RECORDS[:3], record(4, lsn=150), RECORDS[4]]
    assert offset_of(AsOf("", lsn=Lsn(350)), records) == 3


def test_of_a_renewed_frontier_the_last_is_taken():
    records = [*RECORDS[:2], record(3, lsn=200), RECORDS[3]]
    assert offset_of(AsOf("", lsn=Lsn(250)), records) == 3


def test_an_lsn_is_of_the_newest_epoch_and_a_time_of_any():
    records = [record(1, lsn=900), record(2, epoch=2), record(3, epoch=2)]
    assert offset_of(AsOf("", lsn=Lsn(900)), records) is None
    assert offset_of(AsOf("", lsn=Lsn(200)), records) == 2
    assert offset_of(AsOf("", ts_us=1_500_000), records) == 1


def test_a_frontier_of_an_older_epoch_is_itself():
    records = [record(1, lsn=100), record(2, lsn=300), record(3, lsn=100, epoch=2)]
    assert offset_of(AsOf("", lsn=Lsn(100)), records) == 3
    assert offset_of(AsOf("", lsn=Lsn(100), epoch=1), records) == 1


def test_the_nearest_are_one_before_and_one_after():
    frontiers = [each.frontier for each in RECORDS]
    lsns = [frontier.lsn for frontier in nearest(frontiers, AsOf("", lsn=Lsn(250)), 1)]
    assert lsns == [200, 300]
    assert [f.lsn for f in nearest(frontiers, AsOf("", lsn=Lsn(5)), 1)] == [100]
    assert [f.lsn for f in nearest(frontiers, AsOf("", lsn=Lsn(999)), 1)] == [500]
    assert nearest([], AsOf("", lsn=Lsn(5)), 1) == ()


def test_what_is_asked_for_is_read():
    assert parse_as_of("latest") is None
    assert parse_as_of("0/16B3748") == AsOf("0/16B3748", lsn=Lsn(0x16B3748))
    utc = parse_as_of("1970-01-01T00:00:01.000002")
    assert utc is not None
    assert utc.ts_us == 1_000_002
    zoned = parse_as_of("1970-01-01T01:00:00+01:00")
    assert zoned is not None
    assert zoned.ts_us == 0
    for text in ("yesterday", "", "0/", "16B3748/"):
        with pytest.raises(ConfigurationError, match="neither an LSN nor a time"):
            parse_as_of(text)
