"""Writes frontiers: flush, ask for the end offsets, append.

A frontier is written when its LSN moves, and again unchanged after a while of silence: how long
it can be read exactly is counted from its age, and an idle source must not make it grow old.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from changelog.capture.frontier.beginnings import removed, watched
from changelog.capture.frontier.growth import GrowthWatch
from changelog.capture.frontier.settle import Progress
from changelog.capture.frontier.sole_writer import SoleWriter
from changelog.capture.rows.forms import check_not_grown
from changelog.contract.base.errors import LookAgainError, UnavailableLogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import WHOLE, Scope
from changelog.contract.rows.relation import TableName
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer

RENEW_S = 60.0


def _nothing(_topic: str, _count: int, _lsn: Lsn) -> None:
    """Stand in until somebody wants to know."""


class FrontierWriter:
    """Writes the frontiers of one epoch.

    Attributes:
        waiting: whether no frontier may be written yet: the first copy of the tables is not whole.
        absent: topics that are not whole yet; no frontier speaks of them.
        whole: per topic the LSN of the last rows that were copied to it.
        alive_from: per topic where its records may be alive, see `Frontier`.
        aside: tables of which no frontier speaks although older ones do, with the reason.
        children: tables that others inherit from, as `Frontier` has them.
        uncopied: topics that hold only what has changed since they began.
        copied: how many records the copying of tables has written, by topic.
        on_foreign: told topic, number and LSN when others have written records.
    """

    def __init__(
        self,
        *,
        base: Frontier,
        uncopied: Collection[str] = (),
        log: FrontierLog,
        producer: LogProducer,
        check: Callable[[], None],
        partitions: Mapping[str, int] | None = None,
        alone: SoleWriter | None = None,
        growth: GrowthWatch | None = None,
    ) -> None:
        """Prepare to write frontiers.

        Args:
            base: what every frontier shares: slot, epoch, tables, identities.
            uncopied: see the attribute.
            log: the frontier topic.
            producer: writes the records that a frontier speaks for.
            check: raises when the source no longer sends everything.
            partitions: of the topics whose number of them must stay, see `check_not_grown`.
            alone: tells records of others; not needed where these cannot write.
            growth: notices topics that get more partitions.
        """
        self.waiting = False
        self.absent: set[str] = set()
        self.whole = dict(base.whole)
        self.alive_from = dict(base.alive_from)
        self.aside: dict[TableName, str] = {}
        self.children: Mapping[TableName, tuple[TableName, ...]] = {}
        self.uncopied = {*uncopied}
        self.copied: Counter[str] = Counter()
        self.on_foreign: Callable[[str, int, Lsn], None] = _nothing
        self._alone = alone
        self._growth = growth or GrowthWatch()
        self._base = base
        self._check = check
        self._partitions = dict(partitions or {})
        self._log = log
        self._producer = producer
        self._last: Lsn | None = None
        self._renew_at = 0.0

    def worthwhile(self, progress: Progress) -> bool:
        """Tell whether a frontier may be written now and would say something new."""
        due = None if self.waiting else progress.frontier_due()
        if due is None:
            return False
        return due != self._last or time.monotonic() >= self._renew_at

    def renew(self) -> None:
        """Let the next frontier be worthwhile, though its LSN has not moved."""
        self._last = None

    def write(
        self,
        lsn: Lsn,
        *,
        since: Mapping[str, Position],
        ts_us: int,
    ) -> Frontier | None:
        """Write the frontier at `lsn` and wait for its acknowledgement.

        Returns:
            The frontier, or None where others have written records: they may be newer than it.

        Args:
            lsn: what `Progress.frontier_due` allows.
            since: per topic the first position that is alive.
            ts_us: commit time of the last transaction, microseconds since 1970.

        Raises:
            UnavailableLogError: the broker does not take it.
            TopicSettingsError: a topic has grown that must not.
            LookAgainError: one has grown that may, and the frontier is written; or one has lost its
                beginning, and it is not.
        """
        self._producer.flush()
        self._check()
        base = self._base
        tables = {topic: name for topic, name in base.tables.items() if topic not in self.absent}
        topic_ids = {t: known for t, known in base.topic_ids.items() if t not in self.absent}
        places = self._log.places(list(topic_ids))
        ends = {topic: each.ends for topic, each in places.items()}
        check_not_grown(self._partitions, ends)
        self._look_for_removed({topic: each.starts for topic, each in places.items()})
        if self._look_for_others(ends, lsn):
            return None
        frontier = Frontier(
            slot=base.slot,
            epoch=base.epoch,
            lsn=lsn,
            ts_us=max(ts_us, base.ts_us),
            system_id=base.system_id,
            timeline=base.timeline,
            cluster_id=base.cluster_id,
            tables=tables,
            topic_ids=topic_ids,
            ends=ends,
            leader_epochs={topic: each.leader_epochs for topic, each in places.items()},
            grown={
                topic: each
                for topic, each in self._growth.look(ends, since, lsn=lsn, epoch=base.epoch).items()
                if topic in tables
            },
            since={topic: at for topic, at in since.items() if topic in tables},
            scopes=self._scopes(tables),
            whole={topic: at for topic, at in self.whole.items() if topic in tables},
            alive_from={
                t: each for t, each in self.alive_from.items() if t in tables and any(each)
            },
            aside=dict(self.aside),
            children={t: each for t, each in self.children.items() if t in tables.values()},
        )
        self._log.write(frontier)
        if grown := self._growth.unknown() & tables.keys():
            raise LookAgainError(f"new partitions of {', '.join(sorted(grown))}")
        self._last = lsn
        self._renew_at = time.monotonic() + RENEW_S
        return frontier

    def lose_count(self, topics: Iterable[str]) -> None:
        """Note that records were copied to topics that are not in `copied`."""
        if self._alone is not None:
            self._alone.lose_count(topics)

    def _look_for_removed(self, starts: Mapping[str, tuple[int, ...]]) -> None:
        base = replace(self._base, alive_from=self.alive_from)
        for topic in watched(base):
            error = removed(base, topic, starts)
            if error is not None:
                raise LookAgainError(str(error.args[0]))

    def _look_for_others(self, ends: Mapping[str, tuple[int, ...]], lsn: Lsn) -> bool:
        if self._alone is None:
            return False
        found = self._alone.foreign(ends, self._producer.sent + self.copied)
        for topic, count in sorted(found.items()):
            if count < 0:
                raise UnavailableLogError(
                    f'topic "{topic}" has {-count} records less than the brokers have acknowledged'
                )
            self.on_foreign(topic, count, lsn)
        return bool(found)

    def _scopes(self, topics: Collection[str]) -> dict[str, Scope]:
        scopes = {topic: self._base.scope_of(topic) for topic in topics}
        for topic in self.uncopied & scopes.keys():
            scopes[topic] = replace(scopes[topic], copied=False)
        return {topic: scope for topic, scope in scopes.items() if scope != WHOLE}
