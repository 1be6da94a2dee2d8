"""Cases of one test of which `make test` runs the first few, and `make test-all` every one."""

from collections.abc import Iterable

import pytest


def first(count: int, cases: Iterable[object]) -> list[object]:
    """Mark every case after the first `count` as one of the long matrix."""
    return [
        case if place < count else pytest.param(case, marks=pytest.mark.matrix)
        for place, case in enumerate(cases)
    ]
