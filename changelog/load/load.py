"""A load: its places, its jobs, and its result."""

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

    url: str = field(repr=False)  # of the database; holds a password, so no part of `repr`
    table: str  # its name, perhaps with a schema
    name: str  # of the load, whose places are kept
    topics: tuple[str, ...]  # that are read
    start: Start  # where partitions begin
    until: Until | None  # where they end; None to follow
    jobs: int  # how many at once
    batches: Batches = field(default_factory=Batches)  # how much is one transaction
    # topic for records that cannot be written; empty where they end the load
    dead_letters: str = ""


@dataclass(slots=True)
class LoadResult:
    """The result of a load."""

    records: int = 0  # how many were read
    rows: int = 0  # how many rows were written, and keys deleted
    refused: int = 0  # how many records were put aside
    seconds: float = 0.0  # how long it took
    is_done: bool = False  # whether the ends were reached

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
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
    """Check that all topics are there, before a table is made for them.

    Raises:
        ConfigurationError: one is not, or dead letters would go to a topic of a capture.
        UnavailableLogError: no broker answers.
        LogError: they refuse.
    """
    cluster, aside = Cluster(kafka), settings.dead_letters
    for topic in (*settings.topics, *filter(None, [aside])):
        find_topic(cluster, topic)
    if aside:
        check_unclaimed(kafka, aside)


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
            ConfigurationError: there is no such topic, table or place.
            SinkError: a record cannot be written, or the target refuses.
            UnavailableError: a server is away; where topics are followed, it is waited for.
            LogError: a place is not on the log any more.
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
        aside = None
        if self._settings.dead_letters:
            aside = DeadLetters(self._kafka, self._settings.dead_letters)
        shares = split(share, self._settings.jobs)
        with_headers = aside is not None or self._rules.reads_headers
        jobs = [
            Job(
                self._kafka, share, self._settings.batches,
                dead_letters=aside, with_headers=with_headers
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
        """Run jobs in parallel; the first failure ends the rest after their batch."""
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
        """Tell whether a topic has got partitions, which no job reads."""
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
        """Return the place and the end of each partition; record the places of new ones."""
        ids = {name: str(topic.topic_id) for name, topic in topics.items()}
        with target.session.transaction() as cursor:
            stored = target.places.read(cursor)
            lives = target.places.topic_ids(cursor)
        starts: dict[Partition, int] = {}
        ends: dict[Partition, int | None] = {}
        fresh: dict[Partition, int] = {}
        for name, topic in topics.items():
            bounds = bounds_of(self._cluster, name, range(topic.partitions))
            first = self._firsts(name, bounds)
            for partition in bounds:
                at = (name, partition)
                if at in stored and self._goes_on:
                    starts[at] = self._checked(at, stored[at], bounds[partition], ids, lives)
                else:
                    starts[at] = fresh[at] = first[partition]
            ends |= {(name, n): end for n, end in self._ends(name, bounds).items()}
        self._begin(target, fresh, stored, ids)
        before = self._settings.until
        return JobShare(
            starts=starts, ends=ends, before_ms=before.ms if isinstance(before, Since) else None
        )

    @property
    def _goes_on(self) -> bool:
        return self._begun or self._settings.start == Stored()

    def _begin(
        self,
        target: LoadTarget,
        fresh: Mapping[Partition, int],
        stored: Mapping[Partition, int],
        ids: Mapping[str, str],
    ) -> None:
        again = fresh.keys() & stored.keys()
        if again and not self._rules.keys:
            raise ConfigurationError(
                f'load "{self._settings.name}" has loaded these topics before: its rows would be '
                "there twice",
                hint="--from stored goes on, --mode upsert replaces rows, --name begins another "
                "load",
            )
        with target.session.transaction() as cursor:
            target.places.put(cursor, {partition: fresh[partition] for partition in again}, ids)
            target.places.begin(
                cursor,
                {partition: n for partition, n in fresh.items() if partition not in again},
                ids,
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
        at: Partition,
        place: int,
        bounds: Bounds,
        ids: Mapping[str, str],
        lives: Mapping[Partition, str],
    ) -> int:
        topic, partition = at
        is_other = at in lives and lives[at] != ids[topic]
        if is_other or not bounds.first <= place <= bounds.end:
            fault = (
                f'topic "{topic}" was made anew'
                if is_other
                else f'partition {partition} of topic "{topic}" has {bounds.first} to {bounds.end}'
            )
            raise LogError(
                f'load "{self._settings.name}" is at {place} of partition {partition}, and {fault}',
                hint="records are gone: `--name` begins another load, into a table of its own; "
                "--mode upsert with --from beginning writes all there is",
            )
        return place


def split(share: JobShare, jobs: int) -> list[JobShare]:
    """Return the shares of jobs, as even as the partitions allow; none without a partition.

    >>> whole = Share(starts={("t", 0): 0, ("t", 1): 5}, ends={("t", 0): 9, ("t", 1): 6})
    >>> [list(each.starts) for each in split(whole, 4)]
    [[('t', 0)], [('t', 1)]]
    """

    def size(partition: Partition) -> int:
        end = share.ends[partition]
        return 0 if end is None else end - share.starts[partition]

    parts: list[list[Partition]] = [[] for _ in range(min(jobs, len(share.starts)))]
    for partition in sorted(share.starts, key=size, reverse=True):
        least = min(parts, key=lambda some: (sum(map(size, some)), len(some)))
        least.append(partition)
    return [
        JobShare(
            starts={partition: share.starts[partition] for partition in some},
            ends={partition: share.ends[partition] for partition in some},
            before_ms=share.before_ms,
        )
        for some in parts
    ]


def _nap(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop():
        time.sleep(_WAIT_S)
