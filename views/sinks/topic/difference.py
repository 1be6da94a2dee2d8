"""Compute the records that turn one topic into another. DuckDB spills to disk.

Rows are alike when their bytes are. A topic of readers that holds nothing needs no comparison.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from changelog.runtime.closed_database import closed_database
from views.sinks.topic.scan import Scan, scanned
from views.sinks.topic.server import TopicServer

_MEMORY = "1GB"
_ROWS = 200_000
_CHANGED = """
SELECT wanted.key, wanted.value, there.key IS NOT NULL AS was
FROM wanted LEFT JOIN there ON wanted.key = there.key
WHERE there.value IS DISTINCT FROM wanted.value
"""
_GONE = "SELECT key FROM there ANTI JOIN wanted USING (key)"


@dataclass(frozen=True, slots=True)
class Difference:
    """Some keys whose rows differ.

    Attributes:
        keys: in bytes.
        values: what the rows are to be; None where they are to go.
        was: for each key whether there was another row; None where there was no row at all.
    """

    keys: pa.Array
    values: pa.Array | None
    was: pa.Array | None


def differences(server: TopicServer, source: str, target: str | None) -> Iterator[Difference]:
    """Yield the differences between two topics; without a target, to an empty one.

    Raises:
        SinkError: the brokers refuse, or records are gone.
        UnavailableSinkError: they do not answer.
    """
    with ExitStack() as stack, ThreadPoolExecutor(1, "topic-scan") as beside:
        if target is None:
            yield from _all(stack.enter_context(scanned(server, source)))
            return
        other = stack.enter_context(ExitStack())
        reading = beside.submit(lambda: other.enter_context(scanned(server, target)))
        source_scan = stack.enter_context(scanned(server, source))
        there = reading.result()
        yield from _all(source_scan) if there.is_empty else _compared(stack, source_scan, there)


def _all(scan: Scan) -> Iterator[Difference]:
    for batch in scan.rows():
        yield Difference(batch["key"], batch["value"], None)


def _compared(stack: ExitStack, source_scan: Scan, there: Scan) -> Iterator[Difference]:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="changelog-topic-"))
    config = {
        "memory_limit": _MEMORY,
        "temp_directory": folder,
        "preserve_insertion_order": "false",
    }
    database = stack.enter_context(closed_database(config))
    for name, scan in (("wanted", source_scan), ("there", there)):
        database.execute(f"CREATE TABLE {name} (key BLOB, value BLOB)")
        for batch in scan.rows():
            database.register("batch", batch)
            database.execute(f"INSERT INTO {name} SELECT key, value FROM batch")
            database.unregister("batch")
    for batch in database.sql(_CHANGED).to_arrow_reader(_ROWS):
        yield Difference(batch["key"], batch["value"], batch["was"])
    for batch in database.sql(_GONE).to_arrow_reader(_ROWS):
        yield Difference(batch["key"], None, None)
