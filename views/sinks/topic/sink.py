"""Serves a view as a compacted topic of Kafka: a keyed record for each row.

| topic | records |
|---|---|
| `{prefix}.{view}` | the rows of the published generation, for readers |
| `{prefix}.{view}.{generation:06d}` | the rows of one generation |
| `{prefix}.{view}.generations` | the generations and the readers' frontier: `register` |

A topic has no alias that could be moved from one generation to the next, and consumers that go on
from an offset could not follow one. So there is one topic for readers, and publishing is one
transaction that writes the differences: new and changed rows, a tombstone for each removed key, and
the frontier. Readers of committed records have the earlier generation or the new one. A delta of
the published generation is one transaction too, over both of its topics.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from changelog.contract.base.errors import SinkError
from changelog.contract.base.position import Position
from replay.broker.client_options import travelling
from views.base.address import Address
from views.project.spec import check_view_name
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.forward import refuse_older
from views.sinks.topic.difference import TopicGrowth, differences, digest_of, scanned
from views.sinks.topic.options import FOR_EVER, TopicOptions, check_topic_shape
from views.sinks.topic.records import Record, RecordForm, TopicRecordWriter, write_rows
from views.sinks.topic.register import (
    Register,
    RegisteredGeneration,
    ShownGeneration,
    TopicForward,
    generation_key,
    read_register,
    write_frontier,
)
from views.sinks.topic.schema import key_schema, value_schema
from views.sinks.topic.server import TopicServer, TopicTransaction
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_ANY_IDS = (0, 0)


class TopicSink:
    """A view in a topic."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        prefix: str,
        server: TopicServer,
        options: TopicOptions | None = None,
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._topic = f"{prefix}.{self._view}"
        self._server = server
        self._options = options or TopicOptions()
        self._opened: Opened | None = None
        self._are_distinct = False
        self._known_rows: tuple[int, str | None, dict[bytes, bytes]] | None = None

    def check(self, schema: StructType) -> None:
        """Refuse names and types without a form in Avro, and keys with several."""
        check_topic_shape(schema, self._key)
        self._schemas(schema)

    def _schemas(self, schema: StructType) -> dict[str, str]:
        """Return the schemas to register, by subject; none for JSON."""
        if self._options.value != "avro":
            return {}
        return {
            f"{self._topic}-key": key_schema(self._view, schema, self._key),
            f"{self._topic}-value": value_schema(self._view, schema),
        }

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        self.check(schema)
        texts = self._schemas(schema)
        register = self._own()
        self._refuse_other(register)
        if generation in register.generations:
            raise held_already(self._view, generation)
        if self._server.exists(self._topic_of(generation)):
            raise self._foreign(self._topic_of(generation))
        ids = self._server.register(texts) if texts else None
        entry = RegisteredGeneration(self._options.value, None if ids is None else (ids[0], ids[1]))
        self._server.create(self._register, small=True)
        self._note(generation, entry)
        self._server.create(self._topic_of(generation))
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        entry = self._read().generations[current.generation]
        kafka = self._server.kafka
        writer = TopicRecordWriter(
            kafka.brokers,
            travelling(kafka.options),
            self._server.retry_seconds,
            self._topic_of(current.generation),
            RecordForm(rows.schema, self._key, entry.ids),
            secrets.randbits(64),
        )
        current.written, self._are_distinct = write_rows(rows, writer)

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
        current = opened(self._opened, self._view)
        rows = current.finished()
        if not self._are_distinct:
            assert_unique(rows, self._key)
        entry = self._read().generations[current.generation]
        self._note(current.generation, replace(entry, rows=current.written))
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        """Return the number of rows of a sealed generation."""
        return self._sealed(self._read(), generation)[1]

    def address(self, generation: int) -> Address:
        """Return the topic of a sealed generation; that of readers if it is published."""
        register = self._read()
        entry, _ = self._sealed(register, generation)
        is_published = register.published == generation
        is_keyed = register.records != "unkeyed"
        if not is_keyed and self._options.retention_ms != FOR_EVER:
            is_published = False  # records of readers are deleted by age
        location = {
            "brokers": self._server.kafka.brokers,
            "topic": self._topic if is_published else self._topic_of(generation),
            "value": entry.value,
        }
        if is_published and not is_keyed:
            location["records"] = "unkeyed"
        options = {"kafka": dict(self._server.kafka.options)}
        if self._server.registry is not None:
            location["registry"] = self._server.registry.url
            options["registry"] = dict(self._server.registry.options)
        if any(options.values()):
            location["options"] = orjson.dumps(options).decode()
        return Address("topic", location)

    def publish(self, generation: int) -> None:
        """Write the differences to this generation to the readers' topic, in one transaction."""
        register = self._read()
        entry, _ = self._sealed(register, generation)
        if register.published == generation:
            return
        self._refuse_other(register)
        retention_ms = None if self._is_keyed else self._options.retention_ms
        self._server.create(self._topic, retention_ms=retention_ms)
        with self._server.transaction(self._topic) as into:
            # Read only now, when an earlier transaction of this name is committed or aborted.
            self._move(into, generation, entry, self._read().published)
            shown = ShownGeneration(generation, entry.position, self._options.records)
            write_frontier(into, self._register, self._topic, shown)

    def _move(
        self,
        into: TopicTransaction,
        generation: int,
        entry: RegisteredGeneration,
        before: int | None,
    ) -> None:
        """Write the differences between a generation's rows and the readers' rows."""
        target: str | None = self._topic
        if not self._is_keyed:
            target = None if before is None else self._topic_of(before)
        for difference in differences(self._server, self._topic_of(generation), target):
            if not self._is_keyed:
                self._growth(entry).require(difference)
            if difference.values is not None:
                keys = difference.keys if self._is_keyed else None
                into.put_rows(self._topic, keys, difference.values)
                continue
            for key in difference.keys.to_pylist():
                into.put(self._topic, key, None)

    def discard(self, generation: int) -> None:
        """Remove a generation's topic, and then its record in the register."""
        register = self._read()
        refuse_published(self._view, generation, register.published)
        if generation in register.generations:
            self._server.delete(self._topic_of(generation))
            self._note(generation, None)

    def drop(self) -> None:
        """Remove the topic of readers, then the topics of generations, then the register."""
        register = self._own()
        self._server.delete(self._topic)
        for generation in register.generations:
            self._server.delete(self._topic_of(generation))
        self._server.delete(self._register)

    def published(self) -> int | None:
        """Return the generation that the frontier names."""
        return self._read().published

    def generations(self) -> list[int]:
        """List the generations of the register."""
        return sorted(self._read().generations)

    def holds_back(self, generation: int) -> str | None:
        """Return the reason why no delta can be applied to a generation, or None."""
        entry = self._read().generations.get(generation)
        if entry is not None and entry.value != self._options.value:
            return f"generation {generation} has records in {entry.value}"
        if (records := self._read().records) not in {None, self._options.records}:
            return f"readers get {records} records"
        return None

    def delta_columns(self, schema: StructType) -> Sequence[Column]:
        """Return the columns to encode."""
        return self._form(schema).delta_columns()

    def delta_values(self, schema: StructType, delta: pa.Table) -> Mapping[str, pa.Array]:
        """Return the columns to encode."""
        return self._form(schema).delta_values(delta)

    def apply(
        self, generation: int, schema: StructType, delta: pa.Table, position: Position
    ) -> int:
        """Apply a delta to a sealed generation, in one transaction with its position."""
        register = self._read()
        entry, _ = self._sealed(register, generation)
        refuse_older(self._view, generation, _position(entry), position)
        records: Sequence[Record] = RecordForm(schema, self._key, entry.ids).delta_records(delta)
        rows = self._rows(generation, entry)
        self._known_rows = None
        if not self._is_keyed:
            self._refuse_other(register)
            records = self._growth(entry).new(records, rows)
        for key, value in records:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = self._digest(value)
        after = replace(entry, rows=len(rows), position=str(position))
        TopicForward(
            self._server,
            self._topic,
            self._register,
            self._topic_of(generation),
            register.published == generation,
            self._options.records,
        ).apply(generation, records, entry, after)
        self._known_rows = (generation, after.position, rows)
        return len(rows)

    def position(self, generation: int) -> Position | None:
        """Return the position of the last delta."""
        entry = self._read().generations.get(generation)
        return None if entry is None else _position(entry)

    def _rows(self, generation: int, entry: RegisteredGeneration) -> dict[bytes, bytes]:
        """Return the digests of a generation's rows by key; read once and then kept."""
        if self._known_rows is not None and self._known_rows[:2] == (generation, entry.position):
            return self._known_rows[2]
        with scanned(self._server, self._topic_of(generation)) as scanned_topic:
            return {
                key: self._digest(value)
                for batch in scanned_topic.rows()
                for key, value in zip(
                    batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True
                )
            }

    def _digest(self, value: bytes) -> bytes:
        """Return a row's digest if it is needed; otherwise an empty one."""
        return b"" if self._is_keyed else digest_of(value)

    def _growth(self, entry: RegisteredGeneration) -> TopicGrowth:
        key_id = None if entry.ids is None else entry.ids[0]
        return TopicGrowth(self._server, self._view, self._topic, key_id)

    @property
    def _is_keyed(self) -> bool:
        return self._options.records == "keyed"

    def _refuse_other(self, register: Register) -> None:
        """Refuse options that differ from the form of the readers' records."""
        if register.records not in {None, self._options.records}:
            raise SinkError(
                f'topic "{self._topic}" has {register.records} records, not '
                f"{self._options.records} ones",
                hint=f"`rebuild-view {self._view} --drop` removes it; then rebuild, or write "
                f'"records": "{register.records}" in {self._view}.topic.json',
            )

    @property
    def _register(self) -> str:
        return f"{self._topic}.generations"

    def _topic_of(self, generation: int) -> str:
        return f"{self._topic}.{generation:06d}"

    def _form(self, schema: StructType) -> RecordForm:
        return RecordForm(schema, self._key, _ANY_IDS if self._options.value == "avro" else None)

    def _read(self) -> Register:
        return read_register(self._server, self._register) or Register()

    def _own(self) -> Register:
        """Return the register.

        Raises SinkError: there is none, but a topic with the view's name.
        """
        register = read_register(self._server, self._register)
        if register is None and self._server.exists(self._topic):
            raise self._foreign(self._topic)
        return register or Register()

    def _foreign(self, topic: str) -> SinkError:
        return SinkError(
            f'topic "{topic}" exists and was not created for view "{self._view}"',
            hint="choose another sinks.topic.prefix, or remove the topic",
        )

    def _sealed(self, register: Register, generation: int) -> tuple[RegisteredGeneration, int]:
        entry = register.generations.get(generation)
        if entry is None or entry.rows is None:
            raise not_sealed(self._view, generation, sorted(register.generations))
        return entry, entry.rows

    def _note(self, generation: int, entry: RegisteredGeneration | None) -> None:
        # One record is atomic by itself; to begin a transaction may take seconds.
        self._server.write(
            self._register, generation_key(generation), None if entry is None else entry.record()
        )


def _position(entry: RegisteredGeneration) -> Position | None:
    return None if entry.position is None else Position.parse(entry.position)
