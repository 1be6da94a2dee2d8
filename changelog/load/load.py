"""A load of topics into a table: its offsets, its jobs, and its result."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from changelog.connect.postgres.places import OvertakenError, Partition
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogError, UnavailableError
from changelog.kafka.cluster import Cluster, TopicDescription
from changelog.lines.ask import bounds_of, find_topic, offsets_since
from changelog.lines.place import (
    Bounds,
    End,
    Since,
    Start,
    Stored,
    Until,
    end_offsets,
    first_offsets,
)
from changelog.load.encode import Encoder
from changelog.load.job import Batches, DeadLetters, Job, JobShare
from changelog.load.plan import Planner, SchemaOf
from changelog.load.rules.options import Rules
from changelog.load.rules.schema import Schema
from changelog.load.rules.table import LoadedTable
from changelog.load.target import LoadTarget, TableWriter
from changelog.runtime.edge import one_line
from changelog.runtime.progress.bar import RowBar
from changelog.sink.claimed import check_unclaimed

log = logging.getLogger("changelog.load")

_AGAIN_S = 1.0
_LOOK_S = 30.0
_WAIT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The settings of a load."""

    url: str = field(repr=False)  # the database's address, which may hold a password
    table: str  # the table's name, with or without a schema
    name: str  # the name under which the offsets are stored
    topics: tuple[str, ...]
    start: Start  # where to begin in each partition
    until: Until | None  # where to end in each partition; None to follow
    jobs: int  # most jobs at once
    batches: Batches = field(default_factory=Batches)
    # topic for records that cannot be written; empty if they end the load
    dead_letters: str = ""


@dataclass(slots=True)
class LoadResult:
    """The result of a load."""

    records: int = 0  # records that were read
    rows: int = 0  # rows that were written, and keys that were deleted
    refused: int = 0  # records that were sent to the dead letters
    seconds: float = 0.0
    is_done: bool = False  # whether the ends of all partitions were reached

    def to_json(self) -> dict[str, Any]:
        """Return the result as an object of JSON, for `--json`."""
        rate = round(self.records / self.seconds) if self.seconds else 0
        return {
            "records": self.records,
            "rows": self.rows,
            "dead_letters": self.refused,
            "seconds": round(self.seconds, 3),
            "records_per_s": rate,
            "done": self.is_done,
        }


def check_topics(kafka: KafkaConnection, settings: LoadSettings) -> None:
    """Check that all topics exist, before a table is created for them.

    Raises:
        ConfigurationError: one does not, or dead letters would go to a topic of a capture.
        UnavailableLogError: no broker answers.
        LogError: the brokers refuse.
    """
    cluster, dead_letters = Cluster(kafka), settings.dead_letters
    for topic in (*settings.topics, *filter(None, [dead_letters])):
        find_topic(cluster, topic)
    if dead_letters:
        check_unclaimed(kafka, dead_letters)


class Load:
    """A load of topics into one table."""

    def __init__(
        self,
        kafka: KafkaConnection,
        settings: LoadSettings,
        rules: Rules,
        *,
        schema: SchemaOf,
        latest: Schema | None,
        console: Console,
    ) -> None:
        self._kafka, self._settings, self._rules = kafka, settings, rules
        self._schema, self._latest, self._console = schema, latest, console
        self._cluster = Cluster(kafka)
        self._begun = False

    def run(self, stop: Callable[[], bool]) -> LoadResult:
        """Load until the ends are reached, or until stopped.

        Raises:
            ConfigurationError: there is no such topic or table, or `start` cannot be used.
            SinkError: a record cannot be written, or the target refuses.
            UnavailableError: a server does not answer; a load that follows waits for it instead.
            LogError: the records at a stored offset no longer exist.
        """
        result, began = LoadResult(), time.monotonic()
        while not stop():
            try:
                result.is_done = self._attempt(result, stop)
            except UnavailableError as error:
                if self._settings.until is not None and not isinstance(error, OvertakenError):
                    raise
                log.warning("waiting: %s", one_line(error))
                _nap(_AGAIN_S, stop)
            if result.is_done:
                break
        result.seconds = time.monotonic() - began
        return result

    def _attempt(self, result: LoadResult, stop: Callable[[], bool]) -> bool:
        topics = {name: find_topic(self._cluster, name) for name in self._settings.topics}
        with closing(LoadTarget(self._settings.url, self._settings.name)) as target:
            table = target.table(self._settings.table)
            share = self._share(target, topics)
        dead_letters = None
        if self._settings.dead_letters:
            dead_letters = DeadLetters(self._kafka, self._settings.dead_letters)
        shares = split(share, self._settings.jobs)
        with_headers = dead_letters is not None or self._rules.reads_headers
        jobs = [
            Job(
                self._kafka, share, self._settings.batches,
                dead_letters=dead_letters, with_headers=with_headers
            )
            for share in shares
        ]  # fmt: skip
        remaining = sum(
            (end or start) - start
            for start, end in zip(share.starts.values(), share.ends.values(), strict=True)
        )
        try:
            with RowBar(self._console, self._settings.table, remaining) as bar:
                self._run(jobs, table, stop, bar, topics)
        finally:
            result.records += sum(job.records for job in jobs)
            result.rows += sum(job.rows for job in jobs)
            result.refused += sum(job.refused for job in jobs)
        return all(job.is_done for job in jobs)

    def _run(
        self,
        jobs: Sequence[Job],
        table: LoadedTable,
        stop: Callable[[], bool],
        bar: RowBar,
        topics: Mapping[str, TopicDescription],
    ) -> None:
        """Run jobs in parallel; the first failure ends the other jobs after their batch."""
        ended, lock = threading.Event(), threading.Lock()
        looked = time.monotonic()

        def count(records: int) -> None:
            with lock:
                bar.add(records)

        def run(job: Job) -> None:
            with closing(LoadTarget(self._settings.url, self._settings.name)) as target:
                job.run(target, self._writer(table), lambda: ended.is_set() or stop(), count)

        with ThreadPoolExecutor(max(1, len(jobs)), "load") as pool:
            running = {pool.submit(run, job) for job in jobs}
            while running:
                done, running = wait(running, _WAIT_S, FIRST_COMPLETED)
                failed = next((e for future in done if (e := future.exception()) is not None), None)
                if failed is not None:
                    ended.set()
                    wait(running)
                    raise failed
                if self._settings.until is None and time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    if self._grown(topics):
                        ended.set()

    def _grown(self, topics: Mapping[str, TopicDescription]) -> bool:
        """Return whether a topic has got partitions, which no job reads yet."""
        return any(
            find_topic(self._cluster, name).partitions != topic.partitions
            for name, topic in topics.items()
        )

    def _writer(self, table: LoadedTable) -> TableWriter:
        planner = Planner(self._rules, table, self._schema, self._latest)
        encoder = Encoder(self._rules, table, planner)
        return TableWriter(
            table,
            tuple(self._rules.columns),
            self._rules.keys,
            encoder.chunks,
            lambda: frozenset(planner.casts),
        )

    def _share(self, target: LoadTarget, topics: Mapping[str, TopicDescription]) -> JobShare:
        """Return the start and end of each partition, and store the starts of new ones."""
        ids = {name: str(topic.topic_id) for name, topic in topics.items()}
        with target.session.transaction() as cursor:
            stored = target.places.read(cursor)
            stored_ids = target.places.topic_ids(cursor)
        starts: dict[Partition, int] = {}
        ends: dict[Partition, int | None] = {}
        new_starts: dict[Partition, int] = {}
        for name, topic in topics.items():
            bounds = bounds_of(self._cluster, name, range(topic.partitions))
            first = self._firsts(name, bounds)
            for number in bounds:
                partition = (name, number)
                if partition in stored and self._continues:
                    starts[partition] = self._checked(
                        partition, stored[partition], bounds[number], ids, stored_ids
                    )
                else:
                    starts[partition] = new_starts[partition] = first[number]
            ends |= {(name, number): end for number, end in self._ends(name, bounds).items()}
        self._begin(target, new_starts, stored, ids)
        until = self._settings.until
        return JobShare(
            starts=starts, ends=ends, before_ms=until.ms if isinstance(until, Since) else None
        )

    @property
    def _continues(self) -> bool:
        """Return whether stored offsets count: also with another `--from` after the first try."""
        return self._begun or self._settings.start == Stored()

    def _begin(
        self,
        target: LoadTarget,
        new_starts: Mapping[Partition, int],
        stored: Mapping[Partition, int],
        ids: Mapping[str, str],
    ) -> None:
        """Store the offsets at which new partitions begin, and at which old ones begin again."""
        again = new_starts.keys() & stored.keys()
        if again and not self._rules.keys:
            raise ConfigurationError(
                f'load "{self._settings.name}" has loaded these topics before, and would append '
                "their rows a second time",
                hint="--from stored continues it, --mode upsert replaces rows, --name begins "
                "another load",
            )
        with target.session.transaction() as cursor:
            target.places.put(cursor, {part: new_starts[part] for part in again}, ids)
            target.places.begin(
                cursor, {part: n for part, n in new_starts.items() if part not in again}, ids
            )
        self._begun = True

    def _firsts(self, name: str, bounds: Mapping[int, Bounds]) -> dict[int, int]:
        start = self._settings.start
        since = self._since(name, bounds, start.ms) if isinstance(start, Since) else {}
        return first_offsets(start, bounds, since)

    def _ends(self, name: str, bounds: Mapping[int, Bounds]) -> dict[int, int | None]:
        until = self._settings.until
        since = self._since(name, bounds, until.ms) if isinstance(until, Since) else {}
        now_ms = time.time_ns() // 1_000_000
        if isinstance(until, End):
            return {n: bound.end for n, bound in bounds.items()}
        return end_offsets(until, bounds, since, now_ms=now_ms)

    def _since(self, name: str, bounds: Mapping[int, Bounds], ms: int) -> dict[int, int | None]:
        return offsets_since(self._cluster, name, bounds, ms)

    def _checked(
        self,
        partition: Partition,
        place: int,
        bounds: Bounds,
        ids: Mapping[str, str],
        stored_ids: Mapping[Partition, str],
    ) -> int:
        """Return a stored offset; raises LogError if its records no longer exist."""
        topic, number = partition
        is_other = partition in stored_ids and stored_ids[partition] != ids[topic]
        if is_other or not bounds.first <= place <= bounds.end:
            fault = (
                f'topic "{topic}" was deleted and created again'
                if is_other
                else f'partition {number} of topic "{topic}" has {bounds.first} to {bounds.end}'
            )
            raise LogError(
                f'load "{self._settings.name}" is at offset {place} of partition {number}, and '
                f"{fault}",
                hint="records are gone: --name begins another load, into a table of its own; "
                "--mode upsert with --from beginning writes all records that there are",
            )
        return place


def split(share: JobShare, jobs: int) -> list[JobShare]:
    """Split a share into at most `jobs` shares, as even as the partitions allow; none is empty.

    >>> whole = JobShare(starts={("t", 0): 0, ("t", 1): 5}, ends={("t", 0): 9, ("t", 1): 6})
    >>> [list(share.starts) for share in split(whole, 4)]
    [[('t', 0)], [('t', 1)]]
    """

    def size(partition: Partition) -> int:
        end = share.ends[partition]
        return 0 if end is None else end - share.starts[partition]

    parts: list[list[Partition]] = [[] for _ in range(min(jobs, len(share.starts)))]
    for partition in sorted(share.starts, key=size, reverse=True):
        smallest = min(parts, key=lambda part: (sum(map(size, part)), len(part)))
        smallest.append(partition)
    return [
        JobShare(
            starts={partition: share.starts[partition] for partition in part},
            ends={partition: share.ends[partition] for partition in part},
            before_ms=share.before_ms,
        )
        for part in parts
    ]


def _nap(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop():
        time.sleep(_WAIT_S)
