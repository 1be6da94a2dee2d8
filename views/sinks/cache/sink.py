"""Serves a view as entries in Redis or Valkey: an entry per key and generation.

| key | value |
|---|---|
| `{view}:current` | the number of the published generation; readers get this first |
| `{view}:form:{generation}` | JSON: the form of the generation's entries and of their names |
| `{view}:{generation}:{id}` | a row: a JSON document, a hash, or a text |
| `{view}:keys:{generation}` | set of the ids of a generation |
| `{view}:generations` | hash: each generation -> its number of rows, or `open` |
| `{view}:position:{generation}` | the log position after its last delta, see `forward` |

Publishing sets the pointer in one command. The set of ids needs memory (about 60 bytes and the id,
per row), but it counts distinct ids exactly, and a generation is removed by its own ids. The
alternative, SCAN with a pattern, goes through every key of a server that others use too. An id is
added to the set before its entry, so whatever a killed rebuild wrote can be removed.

Only the names of entries and of sets of ids have a hash tag. The names of pointer, register and
form never change, so that readers and this sink find every generation when the options change. In
a cluster no command names two keys, except MSET within one slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import redis
from redis.cluster import RedisCluster

from changelog.contract.base.errors import SinkError
from changelog.runtime.cache_servers import Connection, servers
from views.base.address import Address
from views.base.cache import CacheForm, form_key, pointer, register
from views.project.spec import check_view_name
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.cache.forward import CacheForward, set_entries
from views.sinks.cache.server import CacheClient
from views.sinks.cache.values import CacheOptions, rendering
from views.sinks.forward import entries_of, entry_columns, entry_values
from views.sinks.kept import KeptConnection
from views.sinks.load import Entry, Refusal, load
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique
from views.sinks.values import NotRenderedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from changelog.contract.base.position import Position

_OPEN = "open"
_AT_ONCE = 1_000
"""Entries of one pipeline."""
_LONGER_SECONDS = 60
"""How much longer the set of ids exists than the entries, which are found by it."""


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Writes entries; sent to executors.

    A task may outlive the process that started it. So each batch checks, after its entries, whether
    the generation is still open, and removes them if it is not.
    """

    server: CacheClient  # the server
    view: str  # of the generation
    generation: int  # its number
    form: CacheForm  # of its entries

    @contextmanager
    def connected(self) -> Iterator[Callable[[Sequence[Entry]], Sequence[Refusal]]]:
        """Return the function that writes one batch."""
        with self.server.client() as client:

            def write(entries: Sequence[Entry]) -> Sequence[Refusal]:
                ids = [name for name, _ in entries]
                pipeline = client.pipeline(transaction=False)
                if isinstance(client, RedisCluster):
                    # In a pipeline, the servers of a cluster get their parts in any order.
                    client.sadd(self.form.ids, *ids)
                else:
                    pipeline.sadd(self.form.ids, *ids)
                set_entries(pipeline, self.form, entries, one_slot=isinstance(client, redis.Redis))
                pipeline.hget(register(self.view), str(self.generation))
                if pipeline.execute()[-1] != _OPEN:
                    _remove(client, self.form, ids)
                    raise SinkError(
                        f'generation {self.generation} of view "{self.view}" is not open for '
                        "writing any more"
                    )
                return ()

            yield write


class CacheSink:
    """A view in a cache."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        server: CacheClient,
        options: CacheOptions | None = None,
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._server = server
        self._options = options or CacheOptions()
        self._opened: Opened | None = None

    @property
    def kept(self) -> KeptConnection:
        """Return the connection that each thread keeps."""
        return self._server.kept

    def check(self, schema: StructType) -> None:
        """Refuse columns that cannot be written as entries of the chosen form."""
        check_shape(schema, self._key)
        rendering(self._options.value, schema, self._key)

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        self.check(schema)
        form = CacheForm.of(
            self._view,
            generation,
            value=self._options.value,
            hash_tag=self._options.hash_tag,
            key=[(name, schema[name].dataType.simpleString()) for name in self._key],
        )
        with self._server.client() as client:
            _refuse_evicting(client)
            if not client.hsetnx(self._register, str(generation), _OPEN):
                raise held_already(self._view, generation)
            # A removed generation of this number may have entries that have not expired yet.
            self._remove_entries(client, generation)
            client.set(form_key(self._view, generation), form.text())
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        with self._server.client() as client:
            form = self._form(client, current.generation)
        as_text = rendering(form.value, rows.schema, self._key)
        writer = EntryWriter(self._server, self._view, current.generation, form)
        current.written = load(rows, self._key, writer, as_text).rows

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
        current = opened(self._opened, self._view)
        rows = current.finished()
        with self._server.client() as client:
            stored = client.scard(self._form(client, current.generation).ids)
            if stored != current.written:
                assert_unique(rows, self._key)
                raise SinkError(
                    f"{current.written} rows were written to the cache, it has {stored}"
                )
            client.hset(self._register, str(current.generation), str(stored))
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
        """Return the prefix of a sealed generation's keys, and the options of its form."""
        self.rows(generation)
        with self._server.client() as client:
            form = self._form(client, generation)
        location = {"url": self._server.url, "prefix": form.prefix}
        if form.suffix:
            location["suffix"] = form.suffix
        if form.value != "json":
            location["value"] = form.value
        return Address("cache", location)

    def publish(self, generation: int) -> None:
        """Point readers to a sealed generation, in one command."""
        self.rows(generation)
        with self._server.client() as client:
            client.set(self._pointer, str(generation))

    def discard(self, generation: int) -> None:
        """Remove a generation's entries, in batches that do not block the server.

        The server frees their memory in the background (UNLINK). With `ttl_seconds`, those of a
        sealed generation expire so many seconds later. The mark is removed first and the entry of
        the register last, so a removal that was killed is found and continued by the next.
        """
        refuse_published(self._view, generation, self.published())
        self._discard(generation, self._options.ttl_seconds)

    def drop(self) -> None:
        """Remove the pointer, then each generation of the register, at once."""
        with self._server.client() as client:
            client.unlink(self._pointer)
        for generation in self.generations():
            self._discard(generation, None)

    def _discard(self, generation: int, ttl_seconds: int | None) -> None:
        with self._server.client() as client:
            rows = client.hget(self._register, str(generation))
            if rows is None:
                return
            client.hset(self._register, str(generation), _OPEN)
            form = self._form(client, generation)
            # An unfinished generation had no readers.
            self._remove_entries(client, generation, None if rows == _OPEN else ttl_seconds)
            client.hdel(self._register, str(generation))
            if rows == _OPEN:
                # A task that has outlived its process may have written meanwhile; from here on it
                # sees that the generation is gone.
                _remove_all(client, form)

    def _remove_entries(
        self, client: Connection, generation: int, ttl_seconds: int | None = None
    ) -> None:
        form = self._form(client, generation)
        if ttl_seconds is None:
            _remove_all(client, form)
        else:
            for names in _named(client, form):
                pipeline = client.pipeline(transaction=False)
                for name in names:
                    pipeline.expire(name, ttl_seconds)
                pipeline.execute()
        position = self._forward(generation).key
        for name in (form.ids, position, form_key(self._view, generation)):
            if ttl_seconds is None:
                client.unlink(name)
            else:
                client.expire(name, ttl_seconds + _LONGER_SECONDS)

    def published(self) -> int | None:
        """Return the generation that the pointer names."""
        with self._server.client() as client:
            number = client.get(self._pointer)
        return None if number is None else int(number)

    def generations(self) -> list[int]:
        """List the generations of the register."""
        with self._server.client() as client:
            return sorted(int(number) for number in client.hkeys(self._register))

    def holds_back(self, generation: int) -> str | None:
        """Return the reason why readers would see a delta in parts, or None."""
        with self._server.client() as client:
            if isinstance(client, RedisCluster):
                return "the servers of a cluster do not change in one step"
            form = self._form(client, generation)
        if form.value != self._options.value:
            return f"generation {generation} has entries of the form {form.value}"
        return None

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return a row's id and the value of its entry."""
        form = rendering(self._options.value, schema, self._key)
        return entry_columns("cache", schema, self._key, form)

    def delta_values(
        self,
        schema: StructType,  # noqa: ARG002 - the delta has its types
        delta: pa.Table,
    ) -> Mapping[str, pa.Array]:
        """Return a row's id and the value of its entry."""
        if self._options.value != "json":
            raise NotRenderedError(f'entries of value "{self._options.value}"')
        return entry_values("cache", self._key, delta)

    def apply(
        self,
        generation: int,
        schema: StructType,  # noqa: ARG002 - the documents have its columns already
        delta: pa.Table,
        position: Position,
    ) -> int:
        """Apply a delta to a sealed generation in one MULTI."""
        self.rows(generation)
        come, gone = entries_of("cache", delta)
        with self._server.client() as client:
            form = self._form(client, generation)
            return self._forward(generation).apply(client, form, come, gone, position)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        with self._server.client() as client:
            return self._forward(generation).position(client)

    def _forward(self, generation: int) -> CacheForward:
        return CacheForward(self._view, generation)

    @property
    def _pointer(self) -> str:
        return pointer(self._view)

    @property
    def _register(self) -> str:
        return register(self._view)

    def _form(self, client: Connection, generation: int) -> CacheForm:
        """Return a generation's form; one that has none stored is older than the options."""
        text: Any = client.get(form_key(self._view, generation))
        return CacheForm.of(self._view, generation) if text is None else CacheForm.parse(text)


def _named(client: Connection, form: CacheForm) -> Iterator[list[str]]:
    """Yield the names of a generation's entries in batches."""
    ids = client.sscan_iter(form.ids, count=_AT_ONCE)
    while names := [form.entry(str(name)) for name in islice(ids, _AT_ONCE)]:
        yield names


def _remove_all(client: Connection, form: CacheForm) -> None:
    """Remove the entries of a generation, and the set of their ids."""
    for names in _named(client, form):
        _unlink(client, names)
    client.unlink(form.ids)


def _remove(client: Connection, form: CacheForm, ids: Sequence[str]) -> None:
    """Remove some entries of a generation."""
    _unlink(client, [form.entry(name) for name in ids])
    client.srem(form.ids, *ids)


def _unlink(client: Connection, names: Sequence[str]) -> None:
    pipeline = client.pipeline(transaction=False)
    if isinstance(client, redis.Redis):
        pipeline.unlink(*names)
    else:
        for name in names:
            pipeline.unlink(name)
    pipeline.execute()


def _refuse_evicting(client: Connection) -> None:
    """Refuse a server that silently evicts entries of a published view when it is full."""
    for server in servers(client):
        memory: Any = server.info("memory")
        policy = str(memory.get("maxmemory_policy", "noeviction"))
        if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
            raise SinkError(
                f"the cache evicts any key when it is full (maxmemory-policy {policy})",
                hint="set maxmemory-policy to noeviction or to a volatile one; "
                "the keys of served entries never expire",
            )
