"""Writes frontiers: flush, ask for the end offsets, append.

A frontier is written when its LSN moves, and again unchanged after a while of silence: how long
it can be read exactly is counted from its age, and an idle source must not make it grow old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from changelog.capture.rows.forms import check_not_grown
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.progress import Progress
from changelog.capture.write.topic_watch import GrowthWatch, SoleWriter, removed, watched
from changelog.contract.base.errors import LookAgainError, UnavailableLogError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.contract.log.scope import WHOLE, Scope
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer

RENEW_S = 60.0


OnForeign = Callable[[str, int, Lsn], None]
"""Told topic, number and LSN when others have written records."""


class FrontierWriter:
    """Writes the frontiers of one epoch."""

    def __init__(
        self,
        *,
        base: Frontier,
        ledger: Ledger,
        log: FrontierLog,
        producer: LogProducer,
        check: Callable[[], None],
        partitions: Mapping[str, int] | None = None,
        alone: SoleWriter | None = None,
        growth: GrowthWatch | None = None,
        timeline: Callable[[], int] | None = None,
        key_ids: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare to write frontiers.

        Args:
            base: what every frontier shares: slot, epoch, tables, identities.
            ledger: what is known of each topic.
            log: the frontier topic.
            producer: writes the records that a frontier speaks for.
            check: raises when the source no longer sends everything.
            partitions: of the topics whose number of them must stay, see `check_not_grown`.
            alone: tells records of others; not needed where these cannot write.
            growth: notices topics that get more partitions.
            key_ids: per topic the id of its key schema; read at each frontier.
            timeline: the source's, asked after `check`; None for that of `base`.
        """
        self._timeline = timeline or (lambda: base.timeline)
        self._key_ids = {} if key_ids is None else key_ids
        self._ledger = ledger
        self._revision = ledger.revision
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
        """Tell whether a frontier may be written now and would differ from the last one."""
        due = None if self._ledger.waiting else progress.frontier_due()
        if due is None:
            return False
        is_news = due != self._last or self._revision != self._ledger.revision
        return is_news or time.monotonic() >= self._renew_at

    def write(
        self,
        lsn: Lsn,
        *,
        ts_us: int,
        on_foreign: OnForeign,
        commit: LastCommit | None = None,
    ) -> Frontier | None:
        """Write the frontier at `lsn` and wait for its acknowledgement.

        Returns:
            The frontier, or None where others have written records: they may be newer than it.

        Args:
            lsn: what `Progress.frontier_due` allows.
            ts_us: commit time of the last transaction, microseconds since 1970.
            on_foreign: told of records that others have written.
            commit: the last transaction that this attempt has taken; None before the first.

        Raises:
            UnavailableLogError: the broker does not take it.
            TopicSettingsError: a topic has grown that must not.
            LookAgainError: one has grown that may, and the frontier is written; or one has lost its
                beginning, and it is not.
        """
        self._producer.flush()
        self._check()
        base, ledger = self._base, self._ledger
        revision, since = ledger.revision, ledger.since
        tables = {topic: name for topic, name in base.tables.items() if topic not in ledger.absent}
        topic_ids = {
            t: topic_id for t, topic_id in base.topic_ids.items() if t not in ledger.absent
        }
        places = self._log.places(list(topic_ids))
        ends = {topic: place.ends for topic, place in places.items()}
        check_not_grown(self._partitions, ends)
        self._look_for_removed({topic: place.starts for topic, place in places.items()})
        if self._look_for_others(ends, lsn, on_foreign):
            return None
        frontier = Frontier(
            slot=base.slot,
            epoch=base.epoch,
            lsn=lsn,
            ts_us=max(ts_us, base.ts_us),
            system_id=base.system_id,
            timeline=self._timeline(),
            cluster_id=base.cluster_id,
            tables=tables,
            topic_ids=topic_ids,
            ends=ends,
            leader_epochs={topic: place.leader_epochs for topic, place in places.items()},
            grown={
                topic: growth
                for topic, growth in self._growth.look(
                    ends, since, lsn=lsn, epoch=base.epoch
                ).items()
                if topic in tables
            },
            since={topic: at for topic, at in since.items() if topic in tables},
            scopes=self._scopes(tables),
            whole={topic: at for topic, at in ledger.whole.items() if topic in tables},
            alive_from={
                t: offsets
                for t, offsets in ledger.alive_from.items()
                if t in tables and any(offsets)
            },
            excluded=dict(ledger.excluded),
            children={
                t: tables_of for t, tables_of in ledger.children.items() if t in tables.values()
            },
            signals=dict(ledger.signals),
            paused=ledger.paused,
            commit=commit or base.commit,
            key_ids={t: ids for t, ids in self._key_ids.items() if t in tables},
        )
        self._log.write(frontier)
        if grown := self._growth.unknown() & tables.keys():
            raise LookAgainError(f"new partitions of {', '.join(sorted(grown))}")
        self._last, self._revision = lsn, revision
        self._renew_at = time.monotonic() + RENEW_S
        return frontier

    def lose_count(self, topics: Iterable[str]) -> None:
        """Note that records were copied to topics that the ledger has not counted."""
        if self._alone is not None:
            self._alone.lose_count(topics)

    def _look_for_removed(self, starts: Mapping[str, tuple[int, ...]]) -> None:
        base = replace(self._base, alive_from=self._ledger.alive_from)
        for topic in watched(base):
            error = removed(base, topic, starts)
            if error is not None:
                raise LookAgainError(str(error.args[0]))

    def _look_for_others(
        self, ends: Mapping[str, tuple[int, ...]], lsn: Lsn, on_foreign: OnForeign
    ) -> bool:
        if self._alone is None:
            return False
        counts = self._alone.foreign(ends, self._producer.sent + self._ledger.copied)
        for topic, count in sorted(counts.items()):
            if count < 0:
                raise UnavailableLogError(
                    f'topic "{topic}" has {-count} records less than the brokers have acknowledged'
                )
            on_foreign(topic, count, lsn)
        return bool(counts)

    def _scopes(self, topics: Collection[str]) -> dict[str, Scope]:
        scopes = {topic: self._base.scope_of(topic) for topic in topics}
        for topic in self._ledger.uncopied & scopes.keys():
            scopes[topic] = replace(scopes[topic], copied=False)
        return {topic: scope for topic, scope in scopes.items() if scope != WHOLE}
