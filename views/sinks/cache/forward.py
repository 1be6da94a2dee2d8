"""Brings a generation of a cache forward: all of a delta in one MULTI.

A reader who gets several keys in one command gets all of them from before the delta or all from
after it. The position is stored with the entries, under `{view}:position:{generation}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from redis.exceptions import WatchError

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from changelog.runtime.cache_servers import Connection
from views.base.cache import CacheForm, register
from views.sinks.forward import refuse_older
from views.sinks.load import Entry


def set_entries(
    pipeline: Any,  # noqa: ANN401 - redis-py has no types there
    form: CacheForm,
    entries: Sequence[Entry],
    *,
    one_slot: bool,
    again: bool = False,
) -> None:
    """Put entries into a pipeline.

    `entries`: at least one. `one_slot`: whether one command may name several keys. `again`: whether
    entries with these names may exist, which are then replaced.
    """
    named = {form.entry(name): text for name, text in entries}
    if form.value == "hash":
        if again:
            pipeline.unlink(*named)
        for name, text in named.items():
            pipeline.hset(name, mapping=orjson.loads(text))
    elif one_slot:
        pipeline.mset(named)
    else:
        for name, text in named.items():
            pipeline.set(name, text)


_COUNT = """local count = redis.call('SCARD', KEYS[2])
redis.call('HSET', KEYS[1], ARGV[1], count)
return count"""
"""Counts the entries inside the transaction, after all of them are written."""
_AT_ONCE = 1_000
"""Entries of one command."""


class CacheForward:
    """The entries of one generation."""

    def __init__(self, view: str, generation: int) -> None:
        self._view, self._generation = view, generation

    @property
    def key(self) -> str:
        """Return the key of the position."""
        return f"{self._view}:position:{self._generation}"

    def position(self, client: Connection) -> Position | None:
        """Return the position of the last delta."""
        text = client.get(self.key)
        return None if text is None else Position.parse(str(text))

    def apply(
        self,
        client: Connection,
        form: CacheForm,
        come: Sequence[Entry],
        gone: Sequence[str],
        position: Position,
    ) -> int:
        """Set and remove entries, and the position, in one step; return the number of entries."""
        pipeline: Any
        with client.pipeline(transaction=True) as pipeline:
            pipeline.watch(self.key)
            stored = pipeline.get(self.key)
            refuse_older(
                self._view,
                self._generation,
                None if stored is None else Position.parse(str(stored)),
                position,
            )
            pipeline.multi()
            for begin in range(0, len(come), _AT_ONCE):
                some = come[begin : begin + _AT_ONCE]
                pipeline.sadd(form.ids, *(name for name, _ in some))
                set_entries(pipeline, form, some, one_slot=True, again=True)
            for begin in range(0, len(gone), _AT_ONCE):
                names = gone[begin : begin + _AT_ONCE]
                pipeline.unlink(*map(form.entry, names))
                pipeline.srem(form.ids, *names)
            pipeline.set(self.key, str(position))
            pipeline.eval(_COUNT, 2, register(self._view), form.ids, str(self._generation))
            try:
                return int(pipeline.execute()[-1])
            except WatchError:
                raise SinkError(
                    f'generation {self._generation} of view "{self._view}" was changed meanwhile',
                    hint="let one process follow a view",
                ) from None
