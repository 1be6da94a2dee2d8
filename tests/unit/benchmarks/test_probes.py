"""Probes: how late each was shown, also those that a later one overtook."""

from __future__ import annotations

from benchmarks.probes import Reader


def test_a_probe_that_a_later_one_overtook_counts_until_that_one_was_seen() -> None:
    reader = Reader("view", dict)
    reader.seen = {1: 2.0, 3: 7.0}
    assert reader.delays({1: (1, 1.0), 2: (1, 2.0), 3: (1, 3.0)}, 0.0) == [4.0, 5.0, 1.0]


def test_only_a_later_one_of_the_same_probe_overtakes() -> None:
    reader = Reader("view", dict)
    reader.seen = {3: 7.0}
    assert reader.delays({2: (1, 2.0), 3: (9, 3.0)}, 0.0) == [4.0]


def test_only_what_was_committed_between_two_moments_counts() -> None:
    reader = Reader("view", dict)
    reader.seen = {1: 2.0, 2: 3.0, 3: 4.0}
    assert reader.delays({1: (1, 1.0), 2: (1, 2.0), 3: (1, 3.0)}, 2.0, 2.5) == [1.0]
