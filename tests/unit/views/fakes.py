"""Sinks without servers, for what is decided around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from changelog.contract.base.errors import SinkError
from views.base.address import Address


class FakeSink:
    """Holds numbers instead of rows; `refuses` are generations that it does not publish."""

    def __init__(
        self, published: int | None, generations: Iterable[int], refuses: Iterable[int] = ()
    ) -> None:
        self.current = published
        self.there = set(generations)
        self.refuses = set(refuses)

    def check(self, schema: Any) -> None:
        """Take any columns."""

    def open(self, generation: int, schema: Any) -> None:
        self.there.add(generation)

    def write(self, rows: Any) -> None:
        raise NotImplementedError

    def seal(self) -> Address:
        raise NotImplementedError

    def rows(self, generation: int) -> int:
        return 1

    def address(self, generation: int) -> Address:
        return Address("fake", {})

    def publish(self, generation: int) -> None:
        if generation in self.refuses:
            raise SinkError("the server is away")
        self.current = generation

    def discard(self, generation: int) -> None:
        assert generation != self.current
        self.there.discard(generation)

    def drop(self) -> None:
        self.current = None
        self.there.clear()

    def published(self) -> int | None:
        return self.current

    def generations(self) -> list[int]:
        return sorted(self.there)
