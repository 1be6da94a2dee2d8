"""Which records are shown: `changelog.lines.progress`."""

from hypothesis import given
from hypothesis import strategies as st

from changelog.lines.progress import ReadProgress
from tests.unit.changelog.lines.records import Made


def places(records):
    return [(each.of, each.at) for each in records]


def test_a_record_behind_the_end_ends_a_partition_whose_last_offsets_are_gaps():
    progress = ReadProgress()
    progress.take({0: 5}, {0: 10})
    batch = [Made(5), Made(7), Made(12)]
    assert places(progress.kept(batch)) == [(0, 5), (0, 7)]
    assert progress.is_done


def test_the_word_of_the_broker_ends_a_partition():
    progress = ReadProgress()
    progress.take({0: 0, 1: 3}, {0: 4, 1: 3})
    assert progress.open == {0: 0}
    progress.reach(0, 3)
    assert not progress.is_done
    progress.reach(0, 4)
    progress.reach(7, 4)  # of a partition that was taken away
    assert progress.is_done


def test_a_partition_that_was_taken_away_is_not_shown():
    progress = ReadProgress()
    progress.take({0: 0, 1: 0}, {0: None, 1: None})
    progress.forget([1])
    assert places(progress.kept([Made(0), Made(0, of=1), Made(1)])) == [(0, 0), (0, 1)]


def test_what_was_fetched_twice_is_shown_once():
    progress = ReadProgress()
    progress.take({0: 0}, {0: None})
    batch = [Made(0), Made(1), Made(2)]
    progress.note(progress.kept(batch)[:2])
    assert places(progress.kept(batch)) == [(0, 2)]
    progress.forget([0])
    progress.take({0: 2}, {0: None})  # it comes back, at the place that was stored
    assert places(progress.kept([*batch, *batch], twice=True)) == [(0, 2)]


def test_a_time_ends_a_partition_at_its_first_record():
    progress = ReadProgress()
    progress.take({0: 0, 1: 0}, {0: None, 1: None})
    batch = [Made(0, ms=1), Made(0, of=1, ms=9), Made(1, ms=5), Made(2, ms=4)]
    assert places(progress.kept(batch, before_ms=5)) == [(0, 0)]
    assert progress.ends == {0: 1, 1: 0}
    assert progress.is_done


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30),
    st.dictionaries(st.integers(0, 2), st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9))),
)
def test_each_wanted_record_is_kept_once_and_in_order(batch, taken):
    progress = ReadProgress()
    progress.take(
        {n: start for n, (start, _) in taken.items()}, {n: end for n, (_, end) in taken.items()}
    )
    kept = places(progress.kept([Made(at, of=of) for of, at in batch], twice=True))
    for partition, (start, end) in taken.items():
        offsets = [at for of, at in kept if of == partition]
        assert offsets == sorted(set(offsets))
        assert all(start <= at and (end is None or at < end) for at in offsets)
    wanted: list[tuple[int, int]] = []
    for of, at in batch:
        if of in taken:
            start, end = taken[of]
            newest = max((a for o, a in wanted if o == of), default=start - 1)
            if at > newest and (end is None or at < end):
                wanted.append((of, at))
    assert kept == wanted


@given(
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9))),
    st.dictionaries(st.integers(0, 2), st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9))),
)
def test_a_batch_is_kept_whole_exactly_where_each_record_is(found, taken):
    batch = [Made(at, of=of) for of, at in sorted(found)]
    kept = []
    for twice in (False, True):
        progress = ReadProgress()
        progress.take(
            {n: start for n, (start, _) in taken.items()}, {n: end for n, (_, end) in taken.items()}
        )
        kept.append((places(progress.kept(batch, twice=twice)), progress.is_done))
    assert kept[0] == kept[1]
