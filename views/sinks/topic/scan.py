"""A topic's rows by column: the last record of each key, folded in C as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from changelog.contract.base.errors import SinkError
from replay.base.task_faults import Fault, MarkedError, error_of, marked
from replay.scan.last_records import FoldRules, LastRecords
from replay.scan.range import PartitionRange, read_into
from views.sinks.topic.server import TopicServer, sink_error

_MEMORY_BYTES = 512 << 20
"""Of one topic's keys and last records; what is more goes to a file."""
_ROWS, _BYTES = 200_000, 32 << 20


@dataclass(frozen=True, slots=True)
class Scan:
    """The committed records of a topic up to its end at some moment.

    Attributes:
        last: the last record of each key.
    """

    last: LastRecords

    @property
    def is_empty(self) -> bool:
        """Tell whether the topic has never held a row."""
        return not self.last.records

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, once, in no order: `key` and `value`, some at a time."""
        for last_records in self.last.drain(_ROWS, _BYTES):
            batch = pa.RecordBatch.from_arrays(
                [last_records.keys, last_records.values], ["key", "value"]
            )
            yield (
                batch.filter(last_records.values.is_valid())
                if last_records.values.null_count
                else batch
            )


@contextmanager
def scanned(server: TopicServer, topic: str) -> Iterator[Scan]:
    """Read a topic; its memory is released after the block.

    Raises:
        SinkError: the brokers refuse, or records are gone.
        UnavailableSinkError: they do not answer.
    """
    with closing(LastRecords(FoldRules.by_last(most_bytes=_MEMORY_BYTES))) as last:
        partition = PartitionRange(0, 0, server.end(topic))
        try:
            read_into(last, server.kafka, topic, partition, stall_s=server.retry_seconds)
        except MarkedError as error:
            raise _explained(server, error) from error
        yield Scan(last)


def _explained(server: TopicServer, error: MarkedError) -> SinkError:
    fault, message = marked(str(error)) or (Fault.REFUSED, str(error))
    text = f"{message} at {server.kafka.brokers}"
    if fault is Fault.LOST:
        return SinkError(text, hint="build the view anew")
    return sink_error(error_of(fault, message))
