"""Computes the records that turn one topic into another, in DuckDB, which spills to disk.

Rows are equal if their bytes are. An empty topic of readers needs no comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from changelog.contract.base.errors import SinkError
from changelog.runtime.closed_database import closed_database
from changelog.runtime.process.scratch import ScratchFolder
from replay.base.task_faults import MarkedError, TaskFault, error_of, marked
from replay.scan.last_records import FoldRules, LastRecords
from replay.scan.range import PartitionRange, read_into
from views.sinks.topic.records import Record
from views.sinks.topic.server import TopicServer, sink_error

_MEMORY = "1GB"
_ROWS = 200_000
_CHANGED = """
SELECT source.key, source.value, target.key IS NOT NULL AS had_row
FROM source LEFT JOIN target ON source.key = target.key
WHERE target.value IS DISTINCT FROM source.value
"""
_GONE = "SELECT key FROM target ANTI JOIN source USING (key)"


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Some keys whose rows differ."""

    keys: pa.Array  # in bytes
    values: pa.Array | None  # the new rows; None if the rows are removed
    # for each key whether the target has another row; None if it has no rows at all
    had_row: pa.Array | None


def differences(server: TopicServer, source: str, target: str | None) -> Iterator[TopicDifference]:
    """Yield the differences between two topics; without a target, from an empty one.

    Raises SinkError: the brokers refuse, or records are gone; UnavailableSinkError: they do not
    answer.
    """
    with ExitStack() as stack, ThreadPoolExecutor(1, "topic-scan") as beside:
        if target is None:
            yield from _all(stack.enter_context(scanned(server, source)))
            return
        other = stack.enter_context(ExitStack())
        reading = beside.submit(lambda: other.enter_context(scanned(server, target)))
        source_scan = stack.enter_context(scanned(server, source))
        target_scan = reading.result()
        if target_scan.is_empty:
            yield from _all(source_scan)
        else:
            yield from _compared(stack, source_scan, target_scan)


def _all(scan: _Scan) -> Iterator[TopicDifference]:
    for batch in scan.rows():
        yield TopicDifference(batch["key"], batch["value"], None)


def _compared(
    stack: ExitStack, source_scan: _Scan, target_scan: _Scan
) -> Iterator[TopicDifference]:
    folder = stack.enter_context(ScratchFolder("topic"))
    config = {
        "memory_limit": _MEMORY,
        "temp_directory": folder,
        "preserve_insertion_order": "false",
    }
    database = stack.enter_context(closed_database(config))
    for name, scan in (("source", source_scan), ("target", target_scan)):
        database.execute(f"CREATE TABLE {name} (key BLOB, value BLOB)")
        for batch in scan.rows():
            database.register("batch", batch)
            database.execute(f"INSERT INTO {name} SELECT key, value FROM batch")
            database.unregister("batch")
    for batch in database.sql(_CHANGED).to_arrow_reader(_ROWS):
        yield TopicDifference(batch["key"], batch["value"], batch["had_row"])
    for batch in database.sql(_GONE).to_arrow_reader(_ROWS):
        yield TopicDifference(batch["key"], None, None)


_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class TopicGrowth:
    """The state of a topic without keys, to which a delta may add records."""

    server: TopicServer  # its brokers
    view: str  # its view
    topic: str  # its name
    key_id: int | None  # of Avro's schema of keys; None in JSON

    def require(self, difference: TopicDifference) -> None:
        """Require that a difference has only new rows.

        Raises SinkError: naming a key whose row has changed, or is gone.
        """
        if difference.values is None and len(difference.keys):
            raise self._refused(difference.keys[0].as_py(), "is gone")
        if difference.had_row is None:
            return
        if (place := difference.had_row.index(True).as_py()) >= 0:
            raise self._refused(difference.keys[place].as_py(), "has changed")

    def new(self, records: Sequence[Record], existing: Mapping[bytes, bytes]) -> Sequence[Record]:
        """Return the records of new rows.

        `existing`: the digests of the topic's rows, by their keys.

        Raises SinkError: naming a key whose row has changed, or is gone.
        """
        fresh = []
        for key, value in records:
            if key not in existing:
                if value is not None:
                    fresh.append((key, value))
            elif value is None:
                raise self._refused(key, "is gone")
            elif existing[key] != digest_of(value):
                raise self._refused(key, "has changed")
        return fresh

    def _refused(self, key: bytes, change: str) -> SinkError:
        key_text = key.decode("utf-8", "replace")
        if self.key_id is not None:
            key_text = self.server.json_of(key, self.key_id)
        return SinkError(
            f'topic "{self.topic}" gets only new rows ("records": "unkeyed"), and the row with '
            f"key {key_text} {change}",
            hint=f'"records": "keyed" in {self.view}.topic.json replaces and removes rows',
        )


def digest_of(value: bytes) -> bytes:
    """Return a row's digest."""
    return blake2b(value, digest_size=_DIGEST_BYTES).digest()


_MEMORY_BYTES = 512 << 20
"""Memory for a topic's keys and last records; the rest goes to a file."""
_SCANNED_ROWS, _BYTES = 200_000, 32 << 20


@dataclass(frozen=True, slots=True)
class _Scan:
    """The committed records of a topic, up to its end at the time of reading."""

    last: LastRecords  # the last record of each key

    @property
    def is_empty(self) -> bool:
        """Tell whether the topic has never held a row."""
        return not self.last.records

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, once, in any order, in batches of `key` and `value`."""
        for last_records in self.last.drain(_SCANNED_ROWS, _BYTES):
            batch = pa.RecordBatch.from_arrays(
                [last_records.keys, last_records.values], ["key", "value"]
            )
            yield (
                batch.filter(last_records.values.is_valid())
                if last_records.values.null_count
                else batch
            )


@contextmanager
def scanned(server: TopicServer, topic: str) -> Iterator[_Scan]:
    """Read a topic; its memory is released after the block.

    Raises SinkError: the brokers refuse, or records are gone; UnavailableSinkError: they do not
    answer.
    """
    with closing(LastRecords(FoldRules.by_last(most_bytes=_MEMORY_BYTES))) as last:
        partition = PartitionRange(0, 0, server.end(topic))
        try:
            read_into(last, server.kafka, topic, partition, stall_s=server.retry_seconds)
        except MarkedError as error:
            raise _explained(server, error) from error
        yield _Scan(last)


def _explained(server: TopicServer, error: MarkedError) -> SinkError:
    fault, message = marked(str(error)) or (TaskFault.REFUSED, str(error))
    text = f"{message} at {server.kafka.brokers}"
    if fault is TaskFault.LOST:
        return SinkError(text, hint="rebuild the view")
    return sink_error(error_of(fault, message))
