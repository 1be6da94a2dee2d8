"""A view as cache entries in Redis or Valkey: a JSON document per key, under its generation.

| key | holds |
|---|---|
| `{view}:current` | the number of the published generation; readers get this first |
| `{view}:{generation}:{id}` | a row's document |
| `{view}:keys:{generation}` | set of the ids of a generation |
| `{view}:generations` | hash: each generation -> its number of rows, or `open` |
| `{view}:position:{generation}` | of one that went forward: where the log was then, see `forward` |

Publishing sets the pointer, one command. The set of ids costs memory (some 60 bytes and the id, a
row) and is what makes the rest exact: it counts distinct ids, and a generation is removed by
walking its own ids. The other way, SCAN with a pattern, walks every key of a server that others
use too. An id is in the set before its entry exists, so nothing that a killed rebuild wrote is
out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.cache.forward import CacheForward
from views.sinks.cache.server import CacheClient
from views.sinks.forward import entries_of, entry_columns
from views.sinks.load import Entry, load
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    import pyarrow as pa
    import redis
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.position import Position

_OPEN = "open"
_REMOVED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """What an executor needs to write entries."""

    server: CacheClient
    prefix: str
    ids: str

    @contextmanager
    def connected(self) -> Iterator[Callable[[Sequence[Entry]], None]]:
        """Return the function that writes one batch."""
        with self.server.client() as client:

            def write(entries: Sequence[Entry]) -> None:
                pipeline = client.pipeline(transaction=False)
                pipeline.sadd(self.ids, *(name for name, _ in entries))
                pipeline.mset({f"{self.prefix}{name}": document for name, document in entries})
                pipeline.execute()

            yield write


class CacheSink:
    """A view in a cache."""

    def __init__(self, *, view: str, key: Sequence[str], server: CacheClient) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._server = server
        self._opened: Opened | None = None

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        check_shape(schema, self._key)
        with self._server.client() as client:
            _refuse_evicting(client)
            if not client.hsetnx(self._register, str(generation), _OPEN):
                raise held_already(self._view, generation)
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        number = current.generation
        writer = EntryWriter(self._server, self._prefix(number), self._ids(number))
        current.written = load(rows, self._key, writer)

    def seal(self) -> Address:
        """End writing, and mark the generation as whole."""
        current = opened(self._opened, self._view)
        rows = current.finished()
        with self._server.client() as client:
            held = client.scard(self._ids(current.generation))
            if held != current.written:
                assert_unique(rows, self._key)
                raise SinkError(f"{current.written} rows were written to the cache, it has {held}")
            client.hset(self._register, str(current.generation), str(held))
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        """Return the number of entries of a sealed generation."""
        with self._server.client() as client:
            rows = client.hget(self._register, str(generation))
        if rows is None or rows == _OPEN:
            raise not_sealed(self._view, generation, self.generations())
        return int(rows)

    def address(self, generation: int) -> Address:
        """Return the prefix of a sealed generation's keys."""
        self.rows(generation)
        location = {"url": self._server.url, "prefix": self._prefix(generation)}
        return Address("cache", location)

    def publish(self, generation: int) -> None:
        """Point readers to a sealed generation, in one command."""
        self.rows(generation)
        with self._server.client() as client:
            client.set(self._pointer, str(generation))

    def discard(self, generation: int) -> None:
        """Remove a generation's entries, in batches that hold nobody up.

        The server frees their memory in the background (UNLINK). The mark goes first and the
        register last, so a removal that is killed is found and ended by the next.
        """
        refuse_published(self._view, generation, self.published())
        with self._server.client() as client:
            if client.hexists(self._register, str(generation)):
                client.hset(self._register, str(generation), _OPEN)
            batch: list[str] = []
            for name in client.sscan_iter(self._ids(generation), count=_REMOVED_AT_ONCE):
                batch.append(f"{self._prefix(generation)}{name}")
                if len(batch) >= _REMOVED_AT_ONCE:
                    client.unlink(*batch)
                    batch = []
            if batch:
                client.unlink(*batch)
            client.unlink(self._ids(generation), self._forward(generation).key)
            client.hdel(self._register, str(generation))

    def drop(self) -> None:
        """Remove the pointer, then each generation of the register."""
        with self._server.client() as client:
            client.unlink(self._pointer)
        for generation in self.generations():
            self.discard(generation)

    def published(self) -> int | None:
        """Return the generation that the pointer names."""
        with self._server.client() as client:
            number = client.get(self._pointer)
        return None if number is None else int(number)

    def generations(self) -> list[int]:
        """List the generations of the register."""
        with self._server.client() as client:
            return sorted(int(number) for number in client.hkeys(self._register))

    def holds_back(self, generation: int) -> str | None:  # noqa: ARG002 - of all sinks
        """Return None: one server changes several keys in one step."""
        return None

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return a row's id and document."""
        return entry_columns("cache", schema, self._key)

    def apply(
        self,
        generation: int,
        schema: StructType,  # noqa: ARG002 - the documents are made by it already
        delta: pa.Table,
        position: Position,
    ) -> None:
        """Let a sealed generation hold what a delta says, in one MULTI."""
        self.rows(generation)
        come, gone = entries_of("cache", delta)
        with self._server.client() as client:
            self._forward(generation).apply(client, come, gone, position)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        with self._server.client() as client:
            return self._forward(generation).position(client)

    def _forward(self, generation: int) -> CacheForward:
        return CacheForward(
            self._view,
            generation,
            prefix=self._prefix(generation),
            ids=self._ids(generation),
            register=self._register,
        )

    @property
    def _pointer(self) -> str:
        return f"{self._view}:current"

    @property
    def _register(self) -> str:
        return f"{self._view}:generations"

    def _ids(self, generation: int) -> str:
        return f"{self._view}:keys:{generation}"

    def _prefix(self, generation: int) -> str:
        return f"{self._view}:{generation}:"


def _refuse_evicting(client: redis.Redis) -> None:
    """Raise when a full server would throw entries of a published view away in silence."""
    memory: Any = client.info("memory")
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
        raise SinkError(
            f"the cache evicts any key when it is full (maxmemory-policy {policy})",
            hint="set maxmemory-policy to noeviction or to a volatile one; our keys never expire",
        )
