"""Laws of what may be acknowledged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.capture.state.progress import Progress
from changelog.contract.base.lsn import Lsn

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("transaction"), st.integers(1, 50)),
        st.tuples(st.just("begin only"), st.just(0)),
        st.tuples(st.just("idle"), st.integers(0, 80)),
        st.tuples(st.just("hold"), st.integers(0, 120)),
        st.tuples(st.just("frontier"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_settle_never_decreases_and_never_passes_a_frontier_or_an_open_transaction(steps):
    progress = Progress(Lsn(10))
    end, held, open_transaction, frontiers = 10, 0, False, [10]
    for step, number in steps:
        before = progress.settle()
        match step:
            case "transaction":
                progress.began()
                assert progress.frontier_due() is None
                end += number
                progress.committed(Lsn(end))
                open_transaction = False
            case "begin only":
                progress.began()
                open_transaction = True
            case "idle":
                progress.idle_until(Lsn(end + number))
                end = end if open_transaction else end + number
            case "hold":
                held = max(held, end + number)
                progress.hold_until(Lsn(end + number))
            case "frontier":
                due = progress.frontier_due()
                assert (due is None) == (open_transaction or end < held)
                if due is not None:
                    assert due == end
                    progress.frontier_written(due)
                    frontiers.append(due)
            case _:
                raise AssertionError(step)
        assert before <= progress.settle() == max(frontiers)


def test_a_frontier_past_what_is_allowed_is_refused():
    progress = Progress(Lsn(10))
    progress.began()
    with pytest.raises(ValueError, match="not allowed"):
        progress.frontier_written(Lsn(11))
