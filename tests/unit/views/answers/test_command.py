"""A view is compared again if another generation was published during the comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from changelog.contract.base.errors import SinkError, ViewError
from views.answers.command import compare_served
from views.base.address import Address

ABSENT = ViewError("nothing serves")


class Swapped:
    """A sink in which, at each comparison, the next of some generations comes to serve."""

    def __init__(self, *generations: int | None) -> None:
        self._generations = list(generations)
        self.compared: list[int] = []

    def published(self) -> int | None:
        return self._generations[0]

    def address(self, generation: int) -> Address:
        return Address("memory", {"path": str(generation)})

    def compare(self, *verdicts: bool | Exception | None) -> Any:
        """Return a comparison whose results are these, in order."""
        results = list(verdicts)

        def compared(address: Address) -> SimpleNamespace:
            self.compared.append(int(address.location["path"]))
            self._generations[:-1] = self._generations[1:-1]
            result = results.pop(0)
            if isinstance(result, Exception):
                raise result
            return SimpleNamespace(verified=result)

        return compared


def verdict(sink: Any, *verdicts: bool | Exception | None) -> bool | None:
    return compare_served(sink, sink.compare(*verdicts), absent=ABSENT).verified


@pytest.mark.parametrize("first", [False, None, SinkError("its rows are removed")])
def test_a_generation_that_serves_no_longer_is_not_said_to_differ(first) -> None:
    sink = Swapped(1, 2)
    assert verdict(sink, first, True) is True
    assert sink.compared == [1, 2]


def test_the_verdict_on_what_serves_stands() -> None:
    sink = Swapped(1, 2)
    assert verdict(sink, False, False) is False
    assert sink.compared == [1, 2]
    assert verdict(Swapped(1, 2), True) is True
    with pytest.raises(SinkError, match="does not answer"):
        verdict(Swapped(1), SinkError("it does not answer"))


def test_that_nothing_serves_is_said() -> None:
    with pytest.raises(ViewError):
        verdict(Swapped(None))
