"""Where a scan is cut: by records, not by offsets."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.broker.density import Density, Stratum, strata_of
from replay.broker.splits import doubtful, layers, tasks_of


def measured(offsets, start, end, seen=50):
    """Sample a stratum of a log that has records at `offsets`."""
    first = offsets[bisect_left(offsets, start) : bisect_left(offsets, end)]
    return Stratum.measured(start, end, first[:seen], is_whole=len(first) < seen)


def sampled(offsets, end, tasks):
    """Sample as the probe does: some places evenly spread, then where it is in doubt."""
    strata = [measured(offsets, *each) for each in strata_of(0, end, 16)]
    for _ in range(10):
        share = sum(each.records for each in strata) / tasks
        for number in reversed(doubtful(strata, share)):
            this = strata[number]
            halves = strata_of(this.start, this.end, 2)
            strata[number : number + 1] = [measured(offsets, *half) for half in halves]
    return strata


def counts(offsets, density, tasks):
    return [
        bisect_left(offsets, ends[0]) - bisect_left(offsets, starts[0])
        for starts, ends in layers(density, tasks)
    ]


@pytest.mark.parametrize("dense_from", [0.9, 0.5, 0.99, 0.03])
def test_tasks_have_about_as_many_records_where_the_density_changes(dense_from):
    end, records = 1_000_000, 100_000
    edge = int(end * dense_from)
    sparse = range(0, edge, max(1, edge // (records // 100)))
    step = max(1, (end - edge) // records)
    offsets = [*sparse, *range(edge, end, step)]
    found = counts(offsets, Density((tuple(sampled(offsets, end, 8)),)), 8)

    assert len(found) == 8
    assert sum(found) == len(offsets)
    assert max(found) <= 2 * sorted(found)[len(found) // 2]


def test_without_more_samples_a_task_would_be_too_long():
    """The twin: what is in doubt decides where most records are."""
    end = 1_000_000
    offsets = [*range(0, 900_000, 900), *range(900_000, end)]
    strata = tuple(measured(offsets, *each) for each in strata_of(0, end, 16))
    found = counts(offsets, Density((strata,)), 8)

    assert max(found) > 2 * sorted(found)[len(found) // 2]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), max_size=6), min_size=1, max_size=4
    ),
    st.integers(1, 20),
)
def test_every_offset_is_in_one_range(partitions, tasks):
    strata = []
    for parts in partitions:
        at, made = 7, []
        for length, density in parts:
            made.append(Stratum(at, at + length, length * density))
            at += length
        strata.append(tuple(made))
    found = layers(Density(tuple(strata)), tasks)

    for number, known in enumerate(strata):
        covered = [n for starts, ends in found for n in range(starts[number], ends[number])]
        assert covered == [n for each in known for n in range(each.start, each.end)]


def test_partitions_that_suffice_are_not_split():
    assert tasks_of(1_000_000, partitions=4, cores=2) == 4
    assert tasks_of(1_000_000, partitions=1, cores=8) == 8
    assert tasks_of(1_000, partitions=1, cores=8) == 1
    assert tasks_of(100_000_000, partitions=2, cores=2) == 5
