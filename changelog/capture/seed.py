"""Where the stream begins: at the last frontier, or behind a snapshot taken now.

A snapshot of tables that the log does not have, or has from a life that is over:

1. a temporary slot exports a snapshot at its consistent point C, and goes away by itself when
   this process dies;
2. the rows are copied at positions just before C; the topics' earlier records are dead (`since`);
3. keys that live only there get a tombstone, for readers that do not know `since`;
4. no frontier is written before the stream has passed C.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from rich.console import Console

from changelog.capture.bar import RowBar
from changelog.capture.ground import Ground
from changelog.capture.report import CaptureReport, SnapshotProgress
from changelog.capture.snapshot import CopyJob, SnapshotContext, copy_tables
from changelog.capture.writer import bury
from changelog.contract.frontier import Frontier
from changelog.contract.headers import Op
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position, snapshot_position
from changelog.contract.relation import Relation
from changelog.sink.producer import LogProducer
from changelog.source.slot import create_slot
from changelog.source.snapshot import plan_chunks

log = logging.getLogger("changelog.capture")

_TEMPORARY = "_tmp"
_MAX_SLOT = 63


@dataclass(slots=True, kw_only=True)
class Seed:
    """From where a life streams.

    Attributes:
        epoch: of the positions written.
        lsn: where the stream begins; what lies before is on the log.
        ts_us: commit time that belongs to `lsn`, microseconds since 1970.
        since: per topic the first position that is alive.
        written: per topic and partition the last position behind the last frontier.
        hold_until: no frontier before the stream has passed this.
    """

    epoch: int
    lsn: Lsn
    ts_us: int = 0
    since: dict[str, Position] = field(default_factory=dict)
    written: Mapping[str, Mapping[int, Position]] = field(default_factory=dict)
    hold_until: Lsn = Lsn(0)  # noqa: RUF009 - immutable

    @classmethod
    def resumed(
        cls,
        frontier: Frontier,
        topics: set[str],
        written: Mapping[str, Mapping[int, Position]],
    ) -> Self:
        """Begin at a frontier; `since` of topics that are no longer captured is left behind."""
        return cls(
            epoch=frontier.epoch,
            lsn=frontier.lsn,
            ts_us=frontier.ts_us,
            since={topic: at for topic, at in frontier.since.items() if topic in topics},
            written=written,
        )


def reach_nothing(_point: str) -> None:
    """Stand in for a crash point outside of tests."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a snapshot needs besides its tables.

    Attributes:
        report: counts.
        console: where the progress bar goes.
        stop: asked between chunks.
        reach: told the name of each point at which a crash is tested.
    """

    report: CaptureReport
    console: Console
    stop: Callable[[], bool]
    reach: Callable[[str], None]


def take_snapshot(
    ground: Ground,
    producer: LogProducer,
    relations: Sequence[Relation],
    seed: Seed,
    around: Surroundings,
    *,
    before_close: Callable[[Seed, str], None] = lambda _seed, _slot: None,
) -> Seed | None:
    """Copy tables to their topics and give the seed with their `since`; None when stopped.

    Args:
        ground: the servers of this life.
        producer: for the tombstones.
        relations: the tables.
        seed: what else the stream begins with; changed in place.
        around: report, console, stop, crash points.
        before_close: called with the seed and the temporary slot's name while that slot lives.
    """
    slot = ground.settings.capture.slot
    temporary = f"{slot[: _MAX_SLOT - 12]}{_TEMPORARY}{os.getpid()}"
    before = ground.frontiers.ends([ground.tables.topic(relation) for relation in relations])
    with create_slot(ground.settings.postgres, temporary, temporary=True) as exported:
        around.reach("snapshot begun")
        context = SnapshotContext(
            dsn=ground.settings.postgres,
            snapshot_name=exported.snapshot_name,
            epoch=seed.epoch,
            consistent_point=exported.consistent_point,
            ts_us=time.time_ns() // 1000,
            kafka=ground.settings.kafka,
            producer=dict(ground.settings.capture.producer),
        )
        if not _copy(ground, relations, context, around):
            return None
        around.report.snapshot = None
        around.reach("snapshot copied")
        start = snapshot_position(seed.epoch, exported.consistent_point)
        for relation in relations:
            topic = ground.tables.topic(relation)
            seed.since[topic] = start
            if any(before[topic]):
                dead = partial(ground.dead_keys, producer)
                count = bury(producer, dead, topic, start, op=Op.DELETE, ts_us=context.ts_us)
                log.info(
                    'table "%s": %d keys of before are dead',
                    relation.name,
                    count,
                    extra={"table": str(relation.name), "lsn": str(exported.consistent_point)},
                )
        producer.flush()
        seed.hold_until = max(seed.hold_until, exported.consistent_point)
        before_close(seed, temporary)
    return seed


def _copy(
    ground: Ground, relations: Sequence[Relation], context: SnapshotContext, around: Surroundings
) -> bool:
    jobs = [
        CopyJob(shape, chunk, number, topic, ids, where, ground.partitions[topic])
        for relation in relations
        for ids in [ground.tables.schema_ids(relation, fresh=True)]
        for shape in [ground.tables.shape(relation).only_needed()]
        for where in [ground.filters.get(relation.name, "")]
        for topic in [ground.tables.topic(relation)]
        for number, chunk in enumerate(plan_chunks(ground.connection, relation))
    ]
    estimate = ground.estimated_rows(relations)
    with RowBar(around.console, f"snapshot of {len(relations)} tables", estimate) as bar:

        def count(relation: Relation, rows: int) -> None:
            around.report.snapshot_copied(relation.name, rows, 0)
            bar.add(rows)
            around.reach("snapshot chunk copied")

        around.report.snapshot = SnapshotProgress(estimate)
        workers = ground.settings.capture.snapshot_workers
        return copy_tables(context, jobs, workers=workers, on_rows=count, stop=around.stop)
