"""Frontiers of one attempt: the checks before each, its record, its acknowledgement.

A frontier is written when its LSN moves, and repeated after a minute of silence: how long a state
can be read exactly is counted from the frontier's age, so an idle source must not let it grow old.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from changelog.capture.copy.backfill import Backfill
from changelog.capture.loop.signals import Signals
from changelog.capture.rows.forms import check_not_grown
from changelog.capture.start.attempt import Attempt
from changelog.capture.start.catalogue_watch import CatalogueWatch
from changelog.capture.start.publishing import check_publication
from changelog.capture.start.roster import Roster
from changelog.capture.write.sequences import SequenceLog
from changelog.capture.write.topic_watch import GrowthWatch, SoleWriter, removed, watched
from changelog.contract.base.errors import (
    LookAgainError,
    UnavailableLogError,
    UnavailableSourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, LastCommit
from changelog.contract.log.scope import WHOLE, Scope
from changelog.runtime.failpoints import Failpoint
from changelog.source.stream.assemble import Began
from changelog.source.stream.merged import MergedStream
from changelog.source.stream.slot import inspect_slot
from changelog.source.stream.stream import ReplicationStream

RENEW_S = 60.0
"""Age at which an unchanged frontier is written again."""

Stream = ReplicationStream | MergedStream

OnForeign = Callable[[str, int, Lsn], None]
"""Called with topic, number of records and LSN when another program has written to the topic."""


@dataclass(slots=True, eq=False)
class StreamPlace:
    """How far the stream is, as frontiers record it."""

    began: Began = field(default=Began(Lsn(0), 0, 0))  # the transaction that began last
    commit: LastCommit | None = None  # the last complete transaction, or None before the first


class FrontierWriter:
    """Writes the records of frontiers: flush, ask for the end offsets, append."""

    def __init__(self, attempt: Attempt, ends: Mapping[str, tuple[int, ...]]) -> None:
        """Start at the last frontier; `ends` are the topics' ends before this attempt writes."""
        environment, start = attempt.environment, attempt.start
        self._attempt = attempt
        self._base = Frontier(
            slot=attempt.settings.slot,
            epoch=start.epoch,
            lsn=start.lsn,
            ts_us=start.ts_us,
            commit=start.commit if start.has_frontier else LastCommit(start.lsn, 0),
            system_id=environment.system.system_id,
            cluster_id=environment.cluster_id,
            tables={topic: table for table, topic in environment.topics.items()},
            topic_ids=environment.topic_ids,
            scopes={
                environment.topics[table]: scope for table, scope in environment.scopes.items()
            },
        )
        # With Kafka transactions the broker fences other captures, so there is nobody to look for.
        self._alone = None if attempt.producer.is_transactional else SoleWriter(ends)
        self._growth = GrowthWatch(
            start.grown,
            start.partitions,
            at_start=environment.partitions,
            begun=environment.current_lsn(),
            ms=start.ts_us // 1000 if start.has_frontier else None,
        )
        # Topics without keys must keep their number of partitions: see `check_not_grown`.
        self._partitions = {topic: environment.partitions[topic] for topic in environment.unkeyed}
        self._readers = self._slot_readers()
        self._revision = attempt.ledger.revision
        self._last: Lsn | None = None
        self._renew_at = 0.0

    def worthwhile(self) -> bool:
        """Tell whether a frontier may be written now and would differ from the last one."""
        ledger = self._attempt.ledger
        due = None if ledger.waiting else self._attempt.progress.frontier_due()
        if due is None:
            return False
        is_news = due != self._last or self._revision != ledger.revision
        return is_news or time.monotonic() >= self._renew_at

    def write(self, lsn: Lsn, place: StreamPlace, on_foreign: OnForeign) -> bool:
        """Write the frontier that is due at `lsn` and wait for its acknowledgement.

        Returns False, and writes nothing, if another program has written records: these may be
        newer than the frontier.

        Raises:
            UnavailableSourceError: the source no longer sends us everything.
            UnavailableLogError: the broker does not take it.
            TopicSettingsError: a topic without keys has got more partitions.
            LookAgainError: another topic has got more partitions, and the frontier is written; or a
                topic has lost its first records, and the frontier is not written.
        """
        environment = self._attempt.environment
        self._attempt.producer.flush()
        self._check_source()
        base, ledger = self._base, self._attempt.ledger
        revision, since = ledger.revision, ledger.since
        tables = {topic: name for topic, name in base.tables.items() if topic not in ledger.absent}
        topic_ids = {
            t: topic_id for t, topic_id in base.topic_ids.items() if t not in ledger.absent
        }
        places = environment.frontiers.places(list(topic_ids))
        ends = {topic: at.ends for topic, at in places.items()}
        check_not_grown(self._partitions, ends)
        self._look_for_removed({topic: at.starts for topic, at in places.items()})
        if self._has_foreign_records(ends, lsn, on_foreign):
            return False
        grown = self._growth.look(ends, since, lsn=lsn, epoch=base.epoch)
        frontier = replace(
            base,
            lsn=lsn,
            ts_us=max(place.began.ts_us, base.ts_us),
            timeline=environment.system.timeline,
            tables=tables,
            topic_ids=topic_ids,
            ends=ends,
            leader_epochs={topic: at.leader_epochs for topic, at in places.items()},
            grown={topic: growth for topic, growth in grown.items() if topic in tables},
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
            commit=place.commit or base.commit,
            key_ids={t: ids for t, ids in environment.tables.key_ids.items() if t in tables},
        )
        environment.frontiers.write(frontier)
        if unknown := self._growth.unknown() & tables.keys():
            raise LookAgainError(f"new partitions of {', '.join(sorted(unknown))}")
        self._last, self._revision = lsn, revision
        self._renew_at = time.monotonic() + RENEW_S
        return True

    def _check_source(self) -> None:
        """Check that the publication is unchanged and that we still read every slot."""
        self._attempt.environment.notice_promotion()
        check_publication(self._attempt.environment)
        if self._slot_readers() != self._readers:
            raise UnavailableSourceError(
                f'this capture no longer reads the slot "{self._base.slot}": its connection ended'
            )

    def _slot_readers(self) -> list[int | None]:
        connection = self._attempt.environment.connection
        statuses = [inspect_slot(connection, slot) for slot in self._attempt.settings.capture.slots]
        return [status.active_pid if status is not None else None for status in statuses]

    def lose_count(self, topics: Iterable[str]) -> None:
        """Note topics to which records were copied without a count, so that none is expected."""
        if self._alone is not None:
            self._alone.lose_count(topics)

    def _look_for_removed(self, starts: Mapping[str, tuple[int, ...]]) -> None:
        base = replace(self._base, alive_from=self._attempt.ledger.alive_from)
        for topic in watched(base):
            error = removed(base, topic, starts)
            if error is not None:
                raise LookAgainError(str(error.args[0]))

    def _has_foreign_records(
        self, ends: Mapping[str, tuple[int, ...]], lsn: Lsn, on_foreign: OnForeign
    ) -> bool:
        """Compare the topics' growth with the records that we sent; report each surplus."""
        if self._alone is None:
            return False
        counts = self._alone.foreign(
            ends, self._attempt.producer.sent + self._attempt.ledger.copied
        )
        for topic, count in sorted(counts.items()):
            if count < 0:
                raise UnavailableLogError(
                    f'topic "{topic}" has {-count} fewer records than the brokers acknowledged'
                )
            on_foreign(topic, count, lsn)
        return bool(counts)

    def _scopes(self, topics: Collection[str]) -> dict[str, Scope]:
        scopes = {topic: self._base.scope_of(topic) for topic in topics}
        for topic in self._attempt.ledger.uncopied & scopes.keys():
            scopes[topic] = replace(scopes[topic], copied=False)
        return {topic: scope for topic, scope in scopes.items() if scope != WHOLE}


@dataclass(kw_only=True, slots=True, eq=False)
class Frontiers:
    """Writes frontiers; after each, tells PostgreSQL which WAL it may drop."""

    attempt: Attempt
    stream: Stream
    place: StreamPlace
    writer: FrontierWriter
    watch: CatalogueWatch  # looks for changes that the stream does not report
    roster: Roster  # looks for tables that appear or disappear
    backfill: Backfill
    sequences: SequenceLog | None  # None if the settings do not want them
    signals: Signals

    def write(self) -> None:
        """Write the frontier that is due, unless the state of the catalogue forbids it."""
        progress, context = self.attempt.progress, self.attempt.context
        lsn = progress.frontier_due()
        if lsn is None or not self.writer.worthwhile():
            return
        self.roster.look()
        if not self.watch.look(self.attempt.ledger.absent, self.backfill.tasks.failed):
            return
        if self.sequences is not None:
            self.sequences.write(lsn, self.place.began.ts_us)
        if not self.writer.write(lsn, self.place, self.backfill.tasks.interrupted):
            return
        context.failpoint(Failpoint.FRONTIER_WRITTEN)
        progress.frontier_written(lsn)
        self.stream.acknowledge(progress.settle())
        self.backfill.frontier_written()
        self.roster.frontier_written()
        context.report.frontier_written(lsn, self.place.began.ts_us)
        self.signals.frontier_written()
        context.failpoint(Failpoint.ACKNOWLEDGED)
