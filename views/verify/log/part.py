"""A task of a verification: reads whole partitions of a topic, writes a file of rows and a receipt.

It reads, folds and decodes by the same code as a verification in one process, with one thread and
bounded memory; this module is imported where the task runs. Each attempt writes a file with a new
name, and the receipt that comes back says which one counts.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ChangelogError
from changelog.contract.log.frontier import Frontier
from changelog.runtime.closed_database import closed_database
from changelog.runtime.process.scratch import ScratchFolder
from views.verify.log.decode import Decoder
from views.verify.log.tables import TableState, decoded_tables, empty_table
from views.verify.processes.place import SharedFolder, stamp_of
from views.verify.processes.scratch import together
from views.verify.records.receipts import Receipt, TopicPart, failed
from views.verify.records.survivors import Buckets, FoldedBuckets, SurvivorRules
from views.verify.records.topic import (
    LAST,
    TopicRead,
    buckets_of,
    findings_of,
    read_share,
)

_HELD_BYTES = 32 << 20
"""Records in memory before they are put into their buckets."""
_KEPT_BYTES = 64 << 20
"""Buckets in memory; the rest is written to files."""
_DUCKDB_MEMORY = "256MB"
_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 120_000
"""Size of a row group, enough to be worth a thread of its reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """The facts about a topic that its tasks need."""

    run: str  # id of the verification
    kafka: KafkaConnection  # the brokers; its options name no file
    frontier: Frontier  # the end of the read
    topic: str  # its name
    key_id: int | None  # the schema id of every key, None if that is not known
    rules: SurvivorRules  # which records count
    state: TableState  # the form of the rows
    decoder: bytes  # decodes them, pickled
    place: SharedFolder  # the folder for the file

    def do(self, part: TopicPart) -> str:
        """Return the receipt of a part as text, or the error that ended it."""
        try:
            return self._read_part(part).to_text()
        except ChangelogError as error:
            return failed(error)

    def _read_part(self, part: TopicPart) -> Receipt:
        decoder: Decoder = pickle.loads(self.decoder)  # noqa: S301 - of our own driver
        findings = findings_of(
            self.frontier,
            self.topic,
            self.key_id,
            decoder.quarantine,
            homes=len(self.frontier.ends[self.topic]),
        )
        with ScratchFolder("verify", _local_folder()) as folder:
            buckets = buckets_of(part.offsets, Path(folder), most_bytes=_KEPT_BYTES)
            with closing(buckets):
                read = read_share(
                    self.kafka, self.topic, part.share, TopicRead(findings, buckets), _HELD_BYTES
                )
                file = Path(folder) / "rows.parquet"
                rows = self._written(file, decoder, buckets)
            stamp = stamp_of(file)
            name = f"{part.number}-{uuid.uuid4().hex}.parquet"
            self.place.put(name, file)
        return Receipt(
            run=self.run,
            part=part.number,
            share=read,
            records=findings.count,
            rows=rows,
            later=None if findings.later == LAST else findings.later,
            astray=None if findings.astray == LAST else findings.astray,
            frames=tuple(sorted(frame.hex() for frame in findings.frames)),
            left_out=() if decoder.quarantine is None else tuple(decoder.quarantine.places()),
            file=name,
            size=stamp.size,
            digest=stamp.digest,
        )

    def _written(self, file: Path, decoder: Decoder, buckets: Buckets) -> int:
        """Fold and decode the records into a file; returns the number of rows."""
        settings = {"memory_limit": _DUCKDB_MEMORY, "temp_directory": f"{file.parent}/spill"}
        with closed_database({**settings, "threads": "1"}) as database:
            survivors = FoldedBuckets(database, buckets, self.rules, threads=1)
            tables = decoded_tables(self.state, decoder, survivors, threads=1)
            return write_rows(file, empty_table(self.state).schema, tables)


def write_rows(file: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables into a Parquet file; returns the number of rows.

    Columns are named by their numbers. No statistics are written: those of floats leave out NaN, so
    that a filter would skip it.
    """
    rows, names = 0, [column_name(number) for number in range(len(schema))]
    numbered = schema.empty_table().rename_columns(names).schema
    with pq.ParquetWriter(file, numbered, write_statistics=False) as writer:
        for group in together(tables, _GROUP_BYTES, _GROUP_ROWS):
            renamed = group.select(schema.names).cast(schema).rename_columns(names)
            writer.write_table(renamed, _GROUP_ROWS)
            rows += group.num_rows
    return rows


def column_name(number: int) -> str:
    """Return the name of a column in the file of a part, by its place in the table."""
    return f"c{number}"


def _local_folder() -> str | None:
    """Return the first of Spark's local folders, None for the system's temporary one."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return first if first and Path(first).is_dir() else None
