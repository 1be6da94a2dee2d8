"""Whether the state of a declared log leads to later ends: rules without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from views.verify.kept.declared import (
    DeclaredStanding,
    lacking,
    may_lack,
    not_exact_whole,
    not_the_same,
)
from views.verify.kept.judgement import ALLOWANCE_MS, Cleaning

KEPT = Cleaning(policy="delete", clock="CreateTime", lag_ms=0, retention_ms=86_400_000)
CLEANED = Cleaning(policy="compact", clock="LogAppendTime", lag_ms=60_000, retention_ms=86_400_000)
BEFORE = DeclaredStanding(
    topic_id="a",
    starts=(0, 0),
    begins=(0, 0),
    ends=(5, 9),
    epochs=(3, 4),
    asked_ms=1_000_000,
    cleaning=KEPT,
)
NOW = replace(BEFORE, ends=(7, 9), asked_ms=1_010_000)


def test_a_log_that_went_on_is_the_same():
    assert [*not_the_same(BEFORE, NOW)] == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"topic_id": "b"}, "its id changed"),
        ({"ends": (7, 9, 0)}, "3 partitions and had 2"),
        ({"ends": (4, 9)}, "read to offset 4, and was to 5"),
        ({"starts": (6, 0), "begins": (6, 0)}, "starts at offset 6, behind 5"),
        ({"starts": (2, 0), "begins": (2, 0)}, "begins at offset 2, and did at 0"),
        ({"begins": (0, 12)}, "partition 1 begins at offset 9, and did at 0"),
        ({"epochs": (3, 5)}, "partition 1 has got another leader"),
        ({"epochs": (-1, 4)}, "the leader of partition 0 is not known"),
    ],
)
def test_a_log_that_is_not_what_it_was_is_refused(changed, why):
    (found,) = not_the_same(BEFORE, replace(NOW, **changed))
    assert why in found


def test_what_is_no_part_of_the_log_may_begin_later():
    """Of a log that is read from a time on, where nothing had come yet."""
    before = replace(BEFORE, begins=(5, 9))
    assert [*not_the_same(before, replace(NOW, begins=(7, 9)))] == []
    assert [*not_the_same(before, replace(NOW, begins=(4, 9)))]


def lacks(before=CLEANED, now=CLEANED, *, ended_ms, asked_ms=1_000_000):
    return may_lack(
        replace(BEFORE, cleaning=before, asked_ms=asked_ms),
        replace(NOW, cleaning=now),
        ended_ms=ended_ms,
    )


def test_offsets_without_a_record_are_fine_where_nothing_can_have_been_cleaned_away():
    assert [*lacking((5, 9), (7, 9), (2, 0))] == []
    assert [*lacking((5, 9), (7, 9), (1, 0))] == ["partition 0 gave 1 records from offset 5 to 7"]
    assert lacks(KEPT, KEPT, ended_ms=10**12) is None
    last = 1_060_000 - ALLOWANCE_MS
    assert lacks(ended_ms=last - 1) is None
    for why in (
        lacks(ended_ms=last),
        lacks(replace(CLEANED, lag_ms=0), ended_ms=1_000_001),
        lacks(now=replace(CLEANED, lag_ms=0), ended_ms=1_000_001),
        lacks(KEPT, replace(CLEANED, lag_ms=0, policy="compact,delete"), ended_ms=1_000_001),
        lacks(replace(CLEANED, lag_ms=0, policy="compact,delete"), KEPT, ended_ms=1_000_001),
        lacks(replace(CLEANED, clock="CreateTime"), ended_ms=1_000_001),
        lacks(now=replace(CLEANED, clock="CreateTime"), ended_ms=1_000_001),
        lacks(asked_ms=None, ended_ms=1_000_001),
    ):
        assert why is not None
        assert "offsets have no record" in why


def whole(cleaning, *, ended_ms, appended=BEFORE.ends, asked_ms=1_000_000):
    now = replace(BEFORE, cleaning=cleaning, asked_ms=asked_ms)
    return not_exact_whole(now, now, appended=appended, begun_ms=1_001_000, ended_ms=ended_ms)


def test_a_whole_reading_obeys_what_a_rebuild_obeys():
    assert whole(KEPT, ended_ms=10**12, appended=(99, 99)) is None
    assert whole(replace(CLEANED, lag_ms=0), ended_ms=1_001_001) is None  # nothing was appended
    assert whole(CLEANED, ended_ms=1_001_001, appended=(6, 9)) is None
    late = whole(replace(CLEANED, retention_ms=30_000), ended_ms=1_029_000)
    assert "longer than delete.retention.ms" in (late or "")
    for found in (
        whole(replace(CLEANED, lag_ms=0), ended_ms=1_001_001, appended=(6, 9)),
        whole(replace(CLEANED, clock="CreateTime"), ended_ms=1_001_001, appended=(6, 9)),
        whole(CLEANED, ended_ms=1_001_001, appended=(6, 9), asked_ms=None),
        whole(CLEANED, ended_ms=1_055_000, appended=(6, 9)),
    ):
        assert "records were appended since its ends were taken" in (found or "")
