"""Cases of one test of which `make test` runs the first few, and `make test-all` more."""

from collections.abc import Iterable, Sequence
from itertools import product

import pytest


def first(count: int, cases: Iterable[object]) -> list[object]:
    """Mark every case after the first `count` as one of the long matrix."""
    return [
        case
        if place < count
        else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.matrix)
        for place, case in enumerate(cases)
    ]


def pairs(left: Sequence[object], right: Sequence[object]) -> list[object]:
    """Return every pair; each case of either side is in one that `make test-all` runs.

    The others are for `make test-exhaustive`.
    """
    count = max(len(left), len(right))
    few = {(left[n % len(left)], right[n % len(right)]) for n in range(count)}
    return [
        pytest.param(
            *pair, marks=[pytest.mark.matrix, *([] if pair in few else [pytest.mark.exhaustive])]
        )
        for pair in product(left, right)
    ]
