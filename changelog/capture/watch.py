"""Watches the captured tables for changes of which the stream has no word.

Before each frontier the catalogue is looked at. A table that was changed in silence since the last
look is no longer what a frontier would say, so it is copied anew, set aside, or stops capture. What
was seen is written down beside the frontiers before the frontier that relies on it.

The catalogue is ahead of the stream. Most marks tell by themselves; the new file of a partition may
come from a TRUNCATE of the whole table that the stream is still to bring, so no frontier is written
until the stream is where the catalogue was. The same holds for columns that came or went: when the
stream is there, the log gets the new version of the table, also if no row has come since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from changelog.capture.ground import Ground
from changelog.capture.policy import TABLE_ERRORS
from changelog.contract.errors import ChangelogError, SchemaConflictError
from changelog.contract.lsn import Lsn
from changelog.contract.position import Position
from changelog.contract.relation import TableName
from changelog.contract.standing import Standing, Standings
from changelog.progress import Progress
from changelog.source.catalogue import check_capturable
from changelog.source.standing import look_at

log = logging.getLogger("changelog.capture")

Failed = Callable[[TableName, ChangelogError, Lsn], None]
"""Told of a table that has changed in silence, the error that says how, and where."""


class Watch:
    """Looks at the tables of one life."""

    def __init__(
        self, ground: Ground, epoch: int, progress: Progress, *, new: Collection[str]
    ) -> None:
        """Go on with what an earlier life has seen, but for topics that are new."""
        self._ground = ground
        self._epoch = epoch
        self._progress = progress
        found = ground.frontiers.standings(ground.settings.slot)
        known = found.tables if found is not None and found.epoch == epoch else {}
        topics = {*ground.topics.values()} - {*new}
        self._known = {topic: each for topic, each in known.items() if topic in topics}
        self._is_written = True
        self._truncated: dict[str, set[int]] = {}
        self._waiting: dict[str, tuple[Standing, Lsn]] = {}

    def begin(self, table: TableName) -> None:
        """Take a table as it stands now: it is copied from now on."""
        oid = self._ground.relations[table].oid
        found = look_at(self._ground.connection, [oid]).get(oid)
        if found is not None:
            self._know(self._ground.topics[table], found)

    def forget(self, table: TableName) -> None:
        """Forget a table that is gone: what gets its name is another one."""
        if self._known.pop(self._ground.topics[table], None) is not None:
            self._is_written = False

    def truncated(self, table: TableName, xid: int) -> None:
        """Note that the stream has brought a TRUNCATE."""
        self._truncated.setdefault(self._ground.topics[table], set()).add(xid)

    def look(self, absent: set[str], failed: Failed) -> bool:
        """Look at the tables; False when no frontier may be written yet.

        Args:
            absent: topics that no frontier speaks of.
            failed: told of each table that has changed in silence; may raise.
        """
        ground = self._ground
        spoken = {
            topic: ground.relations[table].oid
            for table, topic in ground.topics.items()
            if topic not in absent
        }
        seen = look_at(ground.connection, spoken.values())
        self._say_unknown_types(seen)
        reached, is_due = self._progress.reached, True
        for topic, oid in spoken.items():
            now, before = seen.get(oid), self._known.get(topic)
            if now is None:
                continue  # dropped this very moment: that is looked at elsewhere
            if before is None:
                self._know(topic, now)
            elif now != before:
                if not self._judge(topic, before, now, reached, failed):
                    is_due = False
                elif topic not in absent:
                    self._know(topic, now)
        if is_due and not self._is_written:
            ground.frontiers.write_standings(
                ground.settings.slot, Standings(self._epoch, self._known)
            )
            self._is_written = True
        return is_due

    def _say_unknown_types(self, seen: Mapping[int, Standing]) -> None:
        """Name the tables whose types no earlier version of capture has looked at."""
        known = {each.oid: each for each in self._known.values()}
        tables = [
            str(now.name)
            for oid, now in seen.items()
            if now.types and oid in known and known[oid].types is None
        ]
        if tables:
            log.warning(
                "types that users made are watched from now on; whether their labels or attributes "
                "were altered since these tables were copied, `changelog verify` can tell: %s",
                ", ".join(sorted(tables)),
            )

    def _judge(
        self, topic: str, before: Standing, now: Standing, reached: Lsn, failed: Failed
    ) -> bool:
        truncated = self._truncated.get(topic, set())
        table = self._ground.table_of(topic)
        unexplained = now.is_unexplained(before, truncated)
        what = "" if unexplained else now.change_since(before, truncated)
        if not what and (unexplained or now.has_other_columns(before)):
            waited = self._waiting.get(topic)
            if waited is None or waited[0] != now:
                waited = self._waiting[topic] = now, self._ground.current_lsn()
            end = waited[1]
            if reached < end:
                self._progress.hold_until(end)
                return False
            what = now.change_since(before, truncated)
        self._waiting.pop(topic, None)
        if what:
            error = SchemaConflictError(
                f'table "{table}", subject "{topic}-value": {what}; the log has no word of it'
            )
            failed(table, error, reached)
            return True
        return not now.has_other_columns(before) or self._register(table, now, failed)

    def _register(self, table: TableName, now: Standing, failed: Failed) -> bool:
        """Let the log have the columns that a table has now, though no row has come since."""
        found = self._ground.catalogue.table(now.oid)
        if found is None or look_at(self._ground.connection, [now.oid]).get(now.oid) != now:
            return False  # it is being altered this very moment
        reached = self._progress.reached
        try:
            check_capturable([found])
            self._ground.tables.copied(found.relation, Position(self._epoch, reached, 0))
        except TABLE_ERRORS as error:
            failed(table, error, reached)
        return True

    def _know(self, topic: str, standing: Standing) -> None:
        self._known[topic] = standing
        self._truncated.pop(topic, None)
        self._is_written = False
