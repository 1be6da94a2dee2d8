"""Watches the captured tables for changes that the stream does not report.

The catalogue is read before each frontier. If a table has changed silently since the last look, a
frontier would be wrong about it, so the table is copied again, excluded, or stops capture. The
observed state is written to the frontier topic before the frontier that relies on it.

The catalogue is ahead of the stream by the whole backlog. Most differences are conclusive by
themselves. But the new file of a partition may come from a TRUNCATE of the whole table that the
stream has yet to bring, so no frontier is written until it has, or until the stream has reached the
LSN of the look. Added or dropped columns get their schema version on the log there, even if no row
follows; the rows are right without it, so frontiers wait for that only a while. Observations are
written down while they wait: otherwise the LSN to wait for would move with every attempt of a
capture that is killed again and again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from changelog.capture.start.attempt import Attempt
from changelog.capture.start.sightings import judge
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.contract.base.errors import (
    ChangelogError,
    KeyConflictError,
    SchemaConflictError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.standing import PublicationVersion, Sighting, Standing, Standings
from changelog.contract.rows.relation import Relation, TableName
from changelog.source.tables.catalogue import check_capturable
from changelog.source.tables.standing import look_at, without_pages

log = logging.getLogger("changelog.capture")

Failed = Callable[[TableName, ChangelogError, Lsn], None]
"""Called with a table that has changed silently, the error that says how, and the LSN."""


COLUMNS_S = 10.0
"""How long frontiers wait for added or dropped columns: rows are right without their version."""


class CatalogueWatch:
    """Compares the tables of one attempt with what the catalogue said before."""

    def __init__(self, attempt: Attempt) -> None:
        """Start with the sightings that earlier attempts have written down."""
        environment = attempt.environment
        self._environment, self._progress = environment, attempt.progress
        self._epoch = attempt.epoch
        standings = environment.frontiers.standings(attempt.settings.slot)
        if standings is None or standings.epoch != attempt.epoch:
            standings = Standings(attempt.epoch, {})
        topics = {*environment.topics.values()} - attempt.start.skipped
        self._standings = {
            topic: standing for topic, standing in standings.tables.items() if topic in topics
        }
        self._sighted = {
            topic: [*standings.sighted.get(topic, ())] for topic in self._standings.keys() & topics
        }
        self._published = standings.publication
        self._is_written = True
        self._has_begun = False
        self._truncated: dict[str, set[int]] = {}
        self._filled: dict[str, dict[int, int]] = {}
        self._patient_until = 0.0

    def begin(self, table: TableName) -> None:
        """Note the present standing of a table whose copy begins now."""
        relation = self._environment.relations[table]
        standing = look_at(self._environment.connection, [relation]).get(relation.oid)
        if standing is not None:
            self._filled.pop(self._environment.topics[table], None)
            self._know(self._environment.topics[table], standing)
            self._has_begun = True

    def knows(self, topic: str) -> bool:
        """Tell whether a table's state is known from an earlier look."""
        return topic in self._standings

    def keep(self) -> None:
        """Write down the tables as they were when their copies began.

        This comes before the progress of the copies is written: an attempt that continues a copy
        has to notice silent changes since its start, and can see only the present state itself.
        """
        if self._has_begun:
            self._write(self._published or self._environment.publication)
            self._has_begun = False

    def forget(self, table: TableName) -> None:
        """Forget a table that is gone: a new table of its name is a different table."""
        topic = self._environment.topics[table]
        self._sighted.pop(topic, None)
        if self._standings.pop(topic, None) is not None:
            self._is_written = False

    def truncated(self, table: TableName, xid: int) -> None:
        """Note that the stream has brought a TRUNCATE."""
        self._truncated.setdefault(self._environment.topics[table], set()).add(xid)

    def filled(self, table: TableName, partition: int, xid: int) -> None:
        """Note that the stream has brought a row of a partition.

        Rows are of the partitioned table; `xid` is the first transaction of a connection that has
        changed the partition.
        """
        self._filled.setdefault(self._environment.topics[table], {})[partition] = xid

    def check_places(self, relation: Relation) -> None:
        """Check that the columns of a table in the stream are in the order of the last look.

        Columns that are left out of the log count too: one may have swapped names with another.

        Raises SchemaConflictError: columns may have swapped names.
        """
        topic = self._environment.topics[relation.name]
        if (standing := self._standings.get(topic)) is None:
            return
        if moved := standing.misplaced([column.name for column in relation.columns]):
            change = f"columns {moved} are at new places: they may have swapped names"
            raise _silent(relation.name, topic, change)

    def look(self, absent: Collection[str], failed: Failed) -> bool:
        """Compare the tables with the last look; return False if no frontier may be written yet.

        `absent` topics are in no frontier. `failed` is called for each table that has changed
        silently, and may raise.
        """
        environment = self._environment
        spoken = {
            topic: environment.relations[table]
            for table, topic in environment.topics.items()
            if topic not in absent
        }
        seen = look_at(environment.connection, spoken.values())
        self._say_unknown_types(seen)
        reached, is_due, is_sighted = self._progress.reached, True, False
        for topic, relation in spoken.items():
            now = seen.get(relation.oid)
            if now is None:
                continue  # dropped at this moment: the roster notices that
            if now.key_index != relation.key_index:
                failed(relation.name, _keyless(relation), reached)
                continue
            if topic in self._standings and (loss := self._lost_partition(topic, now)):
                failed(relation.name, _silent(relation.name, topic, loss), reached)
                continue
            if topic in self._standings and not now.key_constraint:
                # Without a key, keep the last one: if a new key follows, rows may have collided.
                now = replace(now, key_constraint=self._latest(topic).key_constraint)
            if topic not in self._standings:
                self._know(topic, now)
            else:
                is_sighted |= self._note_sighting(topic, now)
                is_due &= self._judge(topic, reached, absent, failed)
        is_old = not self._is_written or environment.publication != self._published
        if is_old and (is_due or is_sighted):
            self._write(environment.publication)
        return is_due

    def _lost_partition(self, topic: str, now: Standing) -> str:
        """Describe the silent loss of rows in partitions newer than the last look, or return "".

        The stream names a partition before its first row, so a partition that came and went
        between two looks is noticed here. TRUNCATE in the transaction that created a partition
        empties its file in place, which no other mark shows.
        """
        filled = self._filled.pop(topic, {})
        if not now.is_partitioned:
            return ""
        if filled.keys() - now.stores.keys():
            return "a partition was added, then detached or dropped, with its rows"
        truncated = self._truncated.get(topic, ())
        empty = [
            oid
            for oid, xid in filled.items()
            if xid not in truncated and _is_not_older(now.stores[oid].joined, xid)
        ]
        if empty and without_pages(self._environment.connection, empty):
            return "a partition was added, then truncated by itself"
        return ""

    def _write(self, publication: PublicationVersion | None) -> None:
        environment = self._environment
        standings = Standings(self._epoch, self._standings, self._waiting, publication)
        environment.frontiers.write_standings(environment.settings.slot, standings)
        self._is_written, self._published = True, publication

    @property
    def _waiting(self) -> dict[str, list[Sighting]]:
        return {topic: sightings for topic, sightings in self._sighted.items() if sightings}

    def _latest(self, topic: str) -> Standing:
        sighted = self._sighted.get(topic)
        return sighted[-1].standing if sighted else self._standings[topic]

    def _note_sighting(self, topic: str, now: Standing) -> bool:
        """Note the state of a table; return whether it has changed."""
        if now == self._latest(topic):
            return False
        if not self._waiting:
            self._patient_until = time.monotonic() + COLUMNS_S
        sighting = Sighting(now, self._environment.current_lsn())
        self._sighted.setdefault(topic, []).append(sighting)
        self._is_written = False
        return True

    def _say_unknown_types(self, seen: Mapping[int, Standing]) -> None:
        """Warn of tables whose user-defined types no earlier version of capture has recorded."""
        standings = {standing.oid: standing for standing in map(self._latest, self._standings)}
        tables = [
            str(now.name)
            for oid, now in seen.items()
            if now.types and oid in standings and standings[oid].types is None
        ]
        if tables:
            log.warning(
                "user-defined types are watched from now on; `changelog verify` can tell whether "
                "their labels or attributes were altered since these tables were copied: %s",
                ", ".join(sorted(tables)),
            )

    def _judge(self, topic: str, reached: Lsn, absent: Collection[str], failed: Failed) -> bool:
        """Judge the sightings of a table; return False if no frontier may be written yet."""
        sighted = self._sighted.get(topic)
        if not sighted:
            return True
        before, table = self._standings[topic], self._environment.table_of(topic)
        judgement = judge(before, sighted, self._truncated.get(topic, ()), reached)
        if judgement.change:
            failed(table, _silent(table, topic, judgement.change), reached)
            if topic not in absent:
                self._know(topic, sighted[-1].standing)
            return True
        if judgement.passed:
            now = sighted[judgement.passed - 1].standing
            # If the table was altered again meanwhile, the last sighting registers its columns.
            is_last = judgement.passed == len(sighted)
            if is_last and now.has_other_columns(before) and not self._register(table, now, failed):
                return False
            if topic not in absent:
                self._know(topic, now, sighted[judgement.passed :])
        is_patient = time.monotonic() < self._patient_until
        return not (judgement.unexplained or (judgement.columns and is_patient))

    def _register(self, table: TableName, now: Standing, failed: Failed) -> bool:
        """Register the schema of a table's present columns before any row has them."""
        table_now = self._environment.catalogue.table(now.oid)
        here = self._environment.relations[table]
        if not self._environment.tables.has_versions(here):
            return True  # its first row registers its columns
        if table_now is None or look_at(self._environment.connection, [here]).get(now.oid) != now:
            return False  # it is being altered at this moment: look again
        reached = self._progress.reached
        try:
            check_capturable([table_now])
            self._environment.tables.copied(table_now.relation, Position(self._epoch, reached, 0))
        except TABLE_ERRORS as error:
            failed(table, error, reached)
        return True

    def _know(self, topic: str, standing: Standing, sighted: Sequence[Sighting] = ()) -> None:
        self._standings[topic] = standing
        self._sighted[topic] = [*sighted]
        if not sighted:
            self._truncated.pop(topic, None)
        self._is_written = False


def _silent(table: TableName, topic: str, change: str) -> SchemaConflictError:
    return SchemaConflictError(
        f'table {table.said}, subject "{topic}-value": {change}; the log has no word of it'
    )


def _is_not_older(xid: int, before: int) -> bool:
    """Tell whether a transaction id is not older than another; ids wrap around at 2^32."""
    return (xid - before) % 2**32 < 2**31


def _keyless(relation: Relation) -> KeyConflictError:
    """Return the error about a table whose key index is gone or has another key now."""
    index = relation.key_index
    name = index.name if index is not None else ""
    return KeyConflictError(
        f'table {relation.name.said}: the index "{name}", which gives its key, was dropped or made '
        "anew, or is no longer unique on the same NOT NULL columns",
        hint="create the index again, or choose another one (--key-index), and start with "
        "`--on-incompatible resnapshot`: meanwhile several rows may have had the same key",
    )
