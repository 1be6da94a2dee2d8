"""Places of `--from` and `--until`: `changelog.lines.place`."""

from datetime import UTC, datetime

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.lines.place import (
    At,
    BeforeEnd,
    Bounds,
    End,
    FirstRecord,
    Since,
    Stored,
    end_offsets,
    first_offsets,
    parse_start,
    parse_until,
)

NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
BOUNDS = {0: Bounds(10, 20), 1: Bounds(0, 5)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", FirstRecord()),
        ("end", End()),
        ("stored", Stored()),
        ("42", At(42)),
        ("-3", BeforeEnd(3)),
        (f"@{NOON_MS}", Since(NOON_MS)),
        ("@2026-01-31T12:00:00Z", Since(NOON_MS)),
        ("@2026-01-31T12:00:00", Since(NOON_MS)),
        ("@2026-01-31 14:00+02:00", Since(NOON_MS)),
        ("@2026-01-31T11:59:59.999001Z", Since(NOON_MS)),
        ("@2026-01-31", Since(NOON_MS - 12 * 3_600_000)),
    ],
)
def test_a_start_is_read(text, place):
    assert parse_start(text) == place


@pytest.mark.parametrize("text", ["", "begin", "4.2", "--3", "@", "@noon", "0x10", "@-5"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(ConfigurationError):
        parse_start(text)
    with pytest.raises(ConfigurationError):
        parse_until(text)


@pytest.mark.parametrize("text", ["beginning", "stored", "-3"])
def test_a_read_does_not_end_where_it_can_only_begin(text):
    with pytest.raises(ConfigurationError):
        parse_until(text)


@pytest.mark.parametrize(
    ("place", "offsets"),
    [
        (FirstRecord(), {0: 10, 1: 0}),
        (End(), {0: 20, 1: 5}),
        (BeforeEnd(7), {0: 13, 1: 0}),
        (BeforeEnd(0), {0: 20, 1: 5}),
        (Since(1), {0: 12, 1: 5}),
    ],
)
def test_a_start_is_an_offset_of_each_partition(place, offsets):
    assert first_offsets(place, BOUNDS, {0: 12, 1: None}) == offsets


def test_an_offset_that_a_partition_does_not_have_is_refused():
    assert first_offsets(At(20), {0: Bounds(10, 20)}, {}) == {0: 20}
    for offset in (9, 21):
        with pytest.raises(ConfigurationError, match="partition 0 has 10 to 20"):
            first_offsets(At(offset), {0: Bounds(10, 20)}, {})


def test_an_end_may_not_be_known_yet():
    since = {0: 12, 1: None}
    assert end_offsets(None, BOUNDS, {}, now_ms=5) == {0: None, 1: None}
    assert end_offsets(End(), BOUNDS, {}, now_ms=5) == {0: 20, 1: 5}
    assert end_offsets(At(99), BOUNDS, {}, now_ms=5) == {0: 99, 1: 99}
    assert end_offsets(Since(6), BOUNDS, since, now_ms=5) == {0: 12, 1: None}
    assert end_offsets(Since(5), BOUNDS, since, now_ms=5) == {0: 12, 1: 5}
