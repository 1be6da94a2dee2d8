"""States of tables whose topics are read by tasks, each of which takes whole partitions.

A key is in one partition as long as its topic never grew, so the results of the tasks need no
further fold. They are checked here: each offset of each partition was read by exactly one counted
task, each key is in the partition of its hash, and the files are those of the receipts. The state
of the topic is checked here too, before and after. A task runs `views.verify.log.part`; the engine
that runs it is not trusted.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import duckdb
import pyarrow.parquet as pq

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import LogError, SinkError
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin
from views.base.pace import Pace, Tell
from views.verify.log.part import PartJob, column_name
from views.verify.log.states import FrontierTables, Taken
from views.verify.log.tables import TableState, base_columns, create_view, inexact_columns
from views.verify.processes.place import FileStamp, SharedFolder
from views.verify.processes.pool import in_threads
from views.verify.records.read import beginnings, unmoved
from views.verify.records.receipts import Receipt, TopicPart, parts_of, require_receipts
from views.verify.records.survivors import SurvivorRules
from views.verify.records.topic import LAST, findings_of
from views.verify.values.faults import Quarantine
from views.verify.values.types import literal, quoted

log = logging.getLogger("changelog.views")

# Between two looks at which files of tasks are there, for the progress.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How topics are read by tasks."""

    launcher: Launcher  # runs the tasks
    width: int  # how many of them run at once
    place: str  # URI of a folder that tasks and this process share
    kafka: KafkaConnection = field(repr=False)  # the brokers; its options name no file
    # the schema registry; its options name no file
    registry: RegistryConnection = field(repr=False)
    least_offsets: int = 0  # a topic with fewer is read here

    def wants(self, frontier: Frontier, topic: str) -> bool:
        """Tell whether a topic is large enough for tasks."""
        return sum(frontier.ends.get(topic, ())) >= self.least_offsets


class SpreadTables:
    """Reads tables of one frontier by tasks into one database."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        spread: Spread,
        frontier: Frontier,
        *,
        folder: Path,
        pins: Mapping[str, SchemaPin],
        quarantines: bool,
        declared: Collection[TableName],
        tell: Tell,
    ) -> None:
        """Store the arguments; reads nothing.

        `frontier`: of the states. `folder`: on this machine, for the files of rows, which stay as
        long as the database. `pins`: by topic the versions to read by; a topic without one is read
        in this process. `quarantines`: leave out the rows whose records cannot be read, and count
        these. `declared`: the logs of other programs, which are read in this process.
        """
        self._database, self._spread, self._frontier = database, spread, frontier
        self._folder, self._pins, self._quarantines = folder, pins, quarantines
        self._declared, self._tell = declared, tell
        self._tables = FrontierTables(database, spread.kafka, spread.registry, frontier, pins=pins)
        self._count = 0

    def state(self, table: TableName) -> Taken | None:
        """Return the state of a table, or None if this process has to read it.

        Raises:
            LogError: the topic is not what the frontier says, or the tasks' results are not whole.
            CorruptRecordError: a record breaks the contract.
            SinkError: the shared folder cannot be written or read.
        """
        topic = self._frontier.topic_of(table)
        if topic is None or not self._spread.wants(self._frontier, topic):
            return None
        frontier = self._frontier.of(topic)
        if (why := self._obstacle(frontier, table, topic)) is not None:
            log.info('topic "%s" is read here for its proof, not by tasks: %s', topic, why)
            return None
        return self._read_by_tasks(frontier, table, topic, self._pins[topic])

    def _obstacle(self, frontier: Frontier, table: TableName, topic: str) -> str | None:
        """Return the reason, if known beforehand, why tasks cannot read a topic, or None."""
        if table in self._declared:
            return "it is the log of another program"
        if topic not in self._pins:
            return "the schema to read it by is known when all of it is read"
        if topic in frontier.grown:
            return "it got more partitions, so a key may lie in two"
        if sum(end > 0 for end in frontier.ends[topic]) <= 1:
            return "one partition has all of its records"
        return None

    def _read_by_tasks(
        self, frontier: Frontier, table: TableName, topic: str, pin: SchemaPin
    ) -> Taken | None:
        begun, ends = time.monotonic(), frontier.ends[topic]
        quarantine = Quarantine() if self._quarantines else None
        reader = self._tables.reader(table, topic, None, quarantine)
        if reader is None:
            return None
        decoder, schema = reader
        self._count += 1
        base = f"__spread_{self._count}"
        state = TableState(table, topic, base, schema.columns, schema.key, choices=pin.choices)
        run = uuid.uuid4().hex
        since = frontier.since.get(topic)
        job = PartJob(
            run=run,
            kafka=self._spread.kafka,
            frontier=frontier,
            topic=topic,
            key_id=pin.key,
            rules=SurvivorRules(epoch=frontier.epoch, since=since),
            state=state,
            decoder=pickle.dumps(decoder),
            place=SharedFolder(f"{self._spread.place}/{run}"),
        )
        with unmoved(self._spread.kafka, frontier, [topic]) as facts:
            starts = beginnings(frontier, topic, facts[topic].starts)
            parts = parts_of(starts, ends, self._spread.width)
            receipts = [Receipt.from_text(text) for text in self._launched(job, parts)]
            require_receipts(topic, run, parts, receipts, starts=starts, ends=ends)
        if astray := min((receipt.astray for receipt in receipts if receipt.astray), default=None):
            log.warning(
                'topic "%s" is read once more, here: the key of partition %d, offset %d belongs '
                "to another partition, so it may be there too",
                topic,
                *astray,
            )
            return None
        self._require_contract(frontier, topic, pin, receipts)
        self._attach(state, job.place, receipts)
        log.info(
            'topic "%s": %d tasks have read, folded and decoded it for its proof, %.1f s',
            topic,
            len(parts),
            time.monotonic() - begun,
        )
        state = replace(state, inexact=inexact_columns(self._database, state))
        create_view(self._database, state)
        return Taken(
            state=state,
            records=sum(receipt.records for receipt in receipts),
            left_out=sum(len(receipt.left_out) for receipt in receipts),
        )

    def _launched(self, job: PartJob, parts: Sequence[TopicPart]) -> list[str]:
        """Run a task for each part; reports progress by the files that are there."""
        offsets, partitions = (sum(map(of, parts)) for of in (_offsets, _partitions))
        pace = Pace(self._tell, f'topic "{job.topic}":', offsets, "offsets by tasks")
        seen: set[int] = set()
        with ThreadPoolExecutor(1, "verify-launch") as pool:
            running = pool.submit(lambda: list(self._spread.launcher(job.do, parts)))
            while not wait([running], _LOOK_S).done:
                with suppress(SinkError):  # if it persists, the tasks fail by it
                    new = _numbers(job.place.names()) - seen
                    seen |= new
                    done = sum(_partitions(parts[number]) for number in seen)
                    pace.add(
                        sum(_offsets(parts[number]) for number in new),
                        f'topic "{job.topic}": {done} of {partitions} partitions,',
                    )
            return running.result()

    def _require_contract(
        self, frontier: Frontier, topic: str, pin: SchemaPin, receipts: Sequence[Receipt]
    ) -> None:
        """Require that the whole topic keeps the contract of a frontier."""
        findings = findings_of(frontier, topic, pin.key, None)
        for receipt in receipts:
            findings.later = min(findings.later, receipt.later or LAST)
            findings.frames |= {bytes.fromhex(frame) for frame in receipt.frames}
        findings.require()

    def _attach(self, state: TableState, place: SharedFolder, receipts: Sequence[Receipt]) -> None:
        """Fetch the rows and create the base table of a state from their files."""
        folder = self._folder / state.base
        folder.mkdir()
        files = [*in_threads(partial(_fetched, state.topic, place, folder), receipts)]
        columns = [
            f"CAST({column_name(number)} AS {kind}) AS {quoted(name)}"
            for number, (name, kind) in enumerate(base_columns(state))
        ]
        paths = ", ".join(literal(str(file)) for file in files)
        self._database.execute(
            f"CREATE OR REPLACE VIEW {quoted(state.base)} AS "
            f"SELECT {', '.join(columns)} FROM read_parquet([{paths}])"
        )


def _offsets(part: TopicPart) -> int:
    return part.offsets


def _partitions(part: TopicPart) -> int:
    return len(part.share)


def _numbers(names: Sequence[str]) -> set[int]:
    """Return the numbers of the parts that have a file."""
    return {int(name.partition("-")[0]) for name in names}


def _fetched(topic: str, place: SharedFolder, folder: Path, receipt: Receipt) -> Path:
    """Copy the file of a receipt to this machine.

    Raises LogError: it is not the file that the task has written; SinkError: it cannot be read.
    """
    file = folder / f"{receipt.part}.parquet"
    stamp = place.fetch(receipt.file, file)
    written = FileStamp(receipt.size, receipt.digest)
    if stamp != written or pq.read_metadata(file).num_rows != receipt.rows:
        raise LogError(
            f'topic "{topic}", task {receipt.part} of the verification: its file {receipt.file} in '
            f"{place.uri} is not the one that it has written",
            hint="look who writes to that folder, and run the verification again",
        )
    return file


# An engine is trusted only to call the given function. It may do so twice, forget a part or lose a
# result: the caller checks that each part was done exactly once.
Given = TypeVar("Given")


class Launcher(Protocol):
    """Runs a function in tasks; `views.verify.processes.pool.in_threads` does without Spark."""

    def __call__(self, work: Callable[[Given], str], items: Sequence[Given], /) -> Iterator[str]:
        """Call `work` with each item; yields the results in any order.

        The function and the items can be pickled; each result is a short text.
        """
        ...
