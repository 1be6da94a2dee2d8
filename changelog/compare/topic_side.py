"""A topic as a side of a comparison: the last record of each key, a tombstone for a deleted row.

The topic is read to its ends once, and from there on before each further look. Rows, Debezium's
envelope and the envelopes of our own log are known, in JSON or in Avro by a registry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import Message

from changelog.compare.document_side import TABLE, Document, DocumentSide, field_texts
from changelog.compare.side import Key
from changelog.compare.texts import row_text
from changelog.connect.rules.records.reading import BadRecordError, RecordReading, parse_json
from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import CorruptRecordError, SinkError, VerdictError
from changelog.contract.base.headers import POSITION, decode_headers
from changelog.contract.base.position import Position
from changelog.kafka.cluster import Cluster
from changelog.kafka.scan import OffsetRange, scan
from changelog.lines.ask import find_topic
from changelog.sink.registry import SchemaRegistry

_GONE = {"d", "t"}
_THERE = {"c", "r", "u"}
_AFTER, _BEFORE = "after_", "before_"
_FLAT = {"op", "ts", "lsn"}
_MARK, _DELETED = "__", "__deleted"


class TopicSide(DocumentSide):
    """The state of a topic of rows or of changes."""

    id_name = None
    comes_twice = True

    def __init__(
        self,
        topic: str,
        key: Sequence[str],
        kafka: KafkaConnection,
        registry: RegistryConnection | None,
        fields: Sequence[str] = (),
    ) -> None:
        """Read the topic to its ends; `fields` may be in no record.

        Raises ConfigurationError: there is no such topic; LogError: brokers or registry do not
        answer, or refuse; SinkError: a record cannot be read; VerdictError: see `_read`.
        """
        self._topic, self._kafka, self._cluster = topic, kafka, Cluster(kafka)
        description = find_topic(self._cluster, topic)
        self._topic_id = description.topic_id
        is_compacted = "compact" in description.settings.get("cleanup.policy", "")
        self._retention_s = (
            int(description.settings["delete.retention.ms"]) / 1000 if is_compacted else None
        )
        self._registry = None if registry is None else SchemaRegistry(registry)
        schema = None if self._registry is None else self._registry.schema
        self._reading = RecordReading(key_form="", value_form="", schema=schema)
        self._ends: dict[int, int] = {}
        self._read_at = time.monotonic()
        super().__init__(f"topic:{topic}", key, fields)
        self.load()

    def _read(self) -> Iterator[Document]:
        """Yield the records that were written since the last read.

        Raises VerdictError: the read took longer than tombstones stay, so one may have been missed;
        SinkError: the topic was made anew or truncated.
        """
        began = time.monotonic()
        standing = self._cluster.standing([self._topic], committed=True).get(self._topic)
        if (
            standing is None
            or standing.topic_id != self._topic_id
            or any(self._ends.get(n, 0) > end for n, end in enumerate(standing.ends))
        ):
            raise SinkError(f"{self.place} was deleted, truncated or made anew while it was read")
        ranges = [
            OffsetRange(self._topic, n, self._ends.get(n, 0), end)
            for n, end in enumerate(standing.ends)
        ]
        yield from map(self._document, scan(self._kafka, ranges))
        took_s = time.monotonic() - self._read_at
        if self._retention_s is not None and took_s > self._retention_s:
            raise VerdictError(
                f"{self.place} was read for {took_s:.0f} s, and its tombstones may be removed after"
                f" {self._retention_s:.0f} s, so a deleted row may have been missed",
                hint="set delete.retention.ms of the topic to more than a read takes",
            )
        self._ends, self._read_at = dict(enumerate(standing.ends)), began

    def _read_again(self, ids: Sequence[str]) -> Iterator[Document]:
        raise NotImplementedError("a topic is read on to its end")

    def _refresh(self, keys: Sequence[Key]) -> None:  # noqa: ARG002 - of any keys
        """Read the topic on to its ends."""
        before = self._batches
        self._append(self._read())
        self._keep_last(before)

    def identity(self) -> Mapping[str, str]:
        """Return the ids of the cluster and of the topic."""
        return {"cluster_id": self._cluster.id(), "topic_id": str(self._topic_id)}

    def writer(self, key: Key) -> str:
        """Return partition and offset of the last record of a key, and its commit LSN if ours."""
        texts = f"SELECT version, {self._canonical} FROM {TABLE}"
        statement = f"SELECT version FROM ({texts}) WHERE {self._key_row} = $1 LIMIT 2"
        versions = self._fetched(statement, [row_text(key)])
        if len(versions) != 1:
            return ""
        position, offset, partition = versions[0][0].split(" ")
        place = f"partition {partition}, offset {int(offset)} of {self.place}"
        if not position:
            return place
        return f"{place}, commit {Position.from_bytes(bytes.fromhex(position)).commit_lsn}"

    def _document(self, record: Message) -> Document:
        """Return the state of a key that a record tells."""
        try:
            own = self._key_fields(record.key())
            for name in own.keys() - self._fields.keys():
                self._add_field(name)  # a topic may have tombstones alone
            raw = record.value()
            row = None if raw is None else row_of(self._decoded(raw, "value"))
            fields = None if row is None else {**own, **field_texts(row)}
        except BadRecordError as error:
            raise SinkError(
                f"{self.place}, partition {record.partition()}, offset {record.offset()}: {error}",
                hint="" if self._registry else "-r URL is the schema registry, if there is one",
            ) from error
        position = _position(record)
        # Without a position of our log, records of one key in two partitions have no order.
        place = "" if position else f"{record.partition()} "
        return Document(
            place + json.dumps(sorted(own.items()), ensure_ascii=False),
            fields,
            f"{position} {record.offset():020d} {record.partition()}",
            own if fields is None else None,
        )

    def _key_fields(self, raw: bytes | None) -> dict[str, str | None]:
        """Return the texts of a key's fields; a key of one value is that of the one key column."""
        if raw is None:
            raise BadRecordError("it has no key, so the topic has no last record of a row")
        try:
            decoded = self._decoded(raw, "key")
        except BadRecordError:
            if raw[:1] == b"\0":
                raise
            try:
                decoded = raw.decode()  # as a StringConverter writes it
            except UnicodeDecodeError:
                raise BadRecordError("its key is neither JSON, Avro nor text") from None
        if isinstance(decoded, dict):
            return field_texts(decoded)
        return field_texts({self._key_names[0] if len(self._key_names) == 1 else "": decoded})

    def _decoded(self, raw: bytes, part: str) -> Any:  # noqa: ANN401 - any JSON
        decoded = self._reading.read(raw, part)
        if isinstance(decoded, orjson.Fragment):  # JSON under a schema of the registry
            text = decoded.contents
            return parse_json(text if isinstance(text, bytes) else text.encode(), part)
        return decoded

    def close(self) -> None:
        """Close connections and remove the scratch file."""
        if self._registry is not None:
            self._registry.close()
        super().close()


def _position(record: Message) -> str:
    """Return the position of a record of our log as text that sorts; empty for other records."""
    headers = record.headers()
    if not headers or POSITION not in dict(headers):
        return ""
    try:
        return decode_headers(headers).position.to_bytes().hex()
    except CorruptRecordError:
        return ""


def row_of(decoded: Any) -> Mapping[str, Any] | None:  # noqa: ANN401 - any JSON
    """Return the row that a value has or tells of, or None if the row is gone.

    >>> row_of({"op": "u", "before": None, "after": {"id": 1}})
    {'id': 1}

    Raises BadRecordError: it is no row and no change of a row.
    """
    if decoded is None:
        return None
    if not isinstance(decoded, dict):
        raise BadRecordError("its value is no object")
    op = decoded.get("op")
    after, before = decoded.get("after"), decoded.get("before")
    is_nested = {"after", "before"} & decoded.keys() and all(
        isinstance(row, dict | None) for row in (after, before)
    )
    is_flat = decoded.keys() >= _FLAT and any(
        name.startswith((_AFTER, _BEFORE)) for name in decoded
    )
    if op is not None and (is_nested or is_flat):
        if op in _GONE:
            return None
        if op not in _THERE:
            raise BadRecordError(f"its op is {op!r}, which is none of c, r, u, d and t")
        if is_flat and not is_nested:
            return {n.removeprefix(_AFTER): v for n, v in decoded.items() if n.startswith(_AFTER)}
        if after is None:
            raise BadRecordError(f"its op is {op!r} and it has no row in after")
        row: Mapping[str, Any] = after
        return row
    if str(decoded.get(_DELETED)).lower() == "true":
        return None
    return {name: value for name, value in decoded.items() if not name.startswith(_MARK)}
