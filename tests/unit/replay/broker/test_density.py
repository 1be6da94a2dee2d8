"""How many records there are, from the first ones of each stratum."""

from __future__ import annotations

import pytest

from replay.broker.density import Density, Stratum, strata_of


@pytest.mark.parametrize(
    ("start", "end", "points", "expected"),
    [
        (0, 0, 4, []),
        (5, 7, 4, [(5, 6), (6, 7)]),
        (0, 10, 3, [(0, 3), (3, 6), (6, 10)]),
        (100, 108, 4, [(100, 102), (102, 104), (104, 106), (106, 108)]),
    ],
)
def test_a_range_is_cut_into_parts_without_holes(start, end, points, expected):
    assert strata_of(start, end, points) == expected


def test_records_that_were_all_seen_are_counted_others_estimated():
    assert Stratum.measured(0, 1_000, [3, 900], is_whole=True).records == 2
    assert Stratum.measured(0, 1_000, [], is_whole=False).records == 0
    assert Stratum.measured(100, 1_100, [100, 101, 109], is_whole=False).records == 300


def test_a_topic_adds_up():
    density = Density(((Stratum(0, 10, 1.0), Stratum(10, 20, 9.0)), (Stratum(0, 20, 20.0),)))
    assert (density.offsets, density.records, density.ratio) == (40, 30, 0.75)
    assert Density(((), ())).ratio is None
