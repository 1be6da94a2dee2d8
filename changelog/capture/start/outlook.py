"""Forecast of a start of capture, before anything is created: a refused start leaves no objects.

`changelog capture` makes the forecast first and then creates the missing objects; `changelog
capture --check` only makes the forecast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changelog.capture.start.decide import (
    Adopt,
    Continue,
    Fork,
    Fresh,
    Resume,
    SlotFacts,
    Wish,
    decide,
)
from changelog.capture.start.environment import Environment
from changelog.capture.start.history import why_undone
from changelog.capture.start.lost_records import Loss, losses
from changelog.capture.start.other_slots import refuse_shared
from changelog.capture.start.publishing import publish, unpublished
from changelog.capture.state.policy import Reaction, answer, check_limit, with_way_out
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    LookAgainError,
    SchemaConflictError,
    SourceError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.backfill import BackfillRecord, copies_of
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.sink.resume import WrittenRecords
from changelog.source.connect.readiness import check_readable, check_room
from changelog.source.connect.retention import MISSING, SlotStatus, why_lost
from changelog.source.connect.system import SystemIdentity
from changelog.source.stream.slot import FAILOVER_SLOTS, check_idle, check_slot, inspect_slots
from changelog.source.tables.publication import PublicationChange


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStanding:
    """State of a slot according to the log and the server."""

    record: FrontierRecord | None  # the last frontier, or None
    backfill: BackfillRecord | None  # the progress of backfills, or None
    slot: SlotStatus | None  # the slot on the server, or None
    undone: str = ""  # why the server has lost changes on the log, see `why_undone`; or empty

    @property
    def frontier(self) -> Frontier | None:
        """Return the last frontier without its place."""
        return self.record.frontier if self.record is not None else None

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of tables with which the log was begun."""
        return self.backfill.groups if self.backfill is not None else ()

    def is_of(self, system: SystemIdentity) -> bool:
        """Tell whether the log's last records are of a server's present timeline."""
        latest = [record for record in (self.frontier, self.backfill) if record is not None]
        here = system.system_id, system.timeline
        return all((record.system_id, record.timeline) == here for record in latest)

    def decision(
        self, environment: Environment, written: WrittenRecords | None = None
    ) -> Fresh | Adopt | Continue | Resume:
        """Decide how to start; without `written`, as if no record followed the last frontier.

        Raises:
            SlotError: log and server are inconsistent.
            SlotBusyError: another capture, or our own previous connection, reads the slot.
            ConfigurationError: the settings ask for a start that is not possible.
        """
        capture = environment.settings.capture
        if self.slot is not None:
            check_idle(self.slot)
        return decide(
            slot_name=environment.settings.slot,
            frontier=self.frontier,
            backfill=self.backfill,
            slot=_facts(self.slot),
            system_id=environment.system.system_id,
            timeline=environment.system.timeline,
            last_epoch=written.last_epoch if written is not None else 0,
            fork=self._fork(environment, written),
            undone=self.undone,
            tables=environment.topics,
            wish=Wish(
                skip_snapshot=capture.skip_snapshot,
                start_lsn=capture.first_lsn,
                temporary=capture.temporary_slot,
                makes_slot=capture.create_slot,
                wal_end=environment.current_lsn(),
                groups=tuple(capture.groups),
            ),
        )

    def _fork(self, environment: Environment, written: WrittenRecords | None) -> Fork:
        frontier = self.frontier
        if frontier is None:
            return Fork()
        passed = written.passed_at(frontier.epoch) if written is not None else Lsn(0)
        return Fork(
            at=environment.system.ended.get(frontier.timeline), reached=max(frontier.lsn, passed)
        )

    def unfinished_copies(
        self, decision: Fresh | Adopt | Continue | Resume
    ) -> BackfillRecord | None:
        """Return the backfills that the attempt continues; None if it has none to continue."""
        match decision:
            case Continue(record=first_copy):
                return first_copy
            case Resume(frontier=frontier):
                same = self.backfill is not None and self.backfill.epoch == frontier.epoch
                return self.backfill if same else None
            case Fresh() | Adopt():
                return None


def standing(environment: Environment) -> SlotStanding:
    """Read the state of the slot from the server, and then from the log.

    The order matters, since another capture may be moving both. It announces a slot on the log
    before it creates it, and writes a frontier before it acknowledges. So the log, read second,
    explains the slot; a slot that is past it was moved by another program.

    Raises LogError: the log's records about the slot were removed.
    """
    name = environment.settings.slot
    slot = inspect_slots(environment.connection, environment.settings.capture.slots)
    lost = environment.frontiers.lost(name) if slot is not None else ""
    if lost:
        raise LogError(
            lost, hint="drop the slot with `changelog slot drop`; the next start copies every table"
        )
    slot_standing = SlotStanding(
        record=environment.frontiers.last(name),
        backfill=environment.frontiers.backfill(name),
        slot=slot,
    )
    if slot is None or slot.active or not slot_standing.is_of(environment.system):
        return slot_standing
    undone = why_undone(environment, slot, slot_standing.frontier, slot_standing.backfill)
    return replace(slot_standing, undone=undone)


def check_slot_unmoved(environment: Environment, slot_standing: SlotStanding) -> None:
    """Check, before a slot is created or dropped, that it has not changed since the decision.

    Raises LookAgainError: another capture has created, moved, dropped or taken it since.
    """
    slots = environment.settings.capture.slots
    now, then = inspect_slots(environment.connection, slots), slot_standing.slot
    if now is not None and then is not None:
        same = not now.active and now.confirmed_flush_lsn == then.confirmed_flush_lsn
    else:
        same = now is then
    if not same:
        raise _slot_moved(environment)


def check_log_unmoved(environment: Environment, slot_standing: SlotStanding) -> None:
    """Check, once this capture alone reads the slot, that the log has not moved since.

    This process may have been stopped in between (SIGSTOP, a paused host).

    Raises LookAgainError: another capture has written a frontier since.
    """
    now = environment.frontiers.last(environment.settings.slot)
    if now is not None and (
        slot_standing.record is None or now.offset != slot_standing.record.offset
    ):
        raise _slot_moved(environment)


def _slot_moved(environment: Environment) -> LookAgainError:
    return LookAgainError(
        f'another capture has moved the slot "{environment.settings.slot}" on since it was '
        "looked at"
    )


@dataclass(frozen=True, slots=True)
class Skipped:
    """The tables that `--skip-snapshot` leaves without a copy."""

    new: frozenset[TableName] = frozenset()  # tables that are missing on the log
    kept: frozenset[TableName] = frozenset()  # tables that the log has, without a copy


def skipped_tables(
    environment: Environment, decision: Resume, unfinished: BackfillRecord | None
) -> Skipped:
    """Return the tables that are not copied; a copy that has begun continues."""
    if not environment.settings.capture.skip_snapshot:
        return Skipped()
    frontier = decision.frontier
    copied = {copy.table for copy in copies_of(unfinished)}
    kept = {
        table
        for topic, table in frontier.tables.items()
        if environment.topics.get(table) == topic and not frontier.is_copied(topic)
    }
    return Skipped(frozenset(decision.added) - copied, frozenset(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Forecast of a start of capture."""

    # the decision; the number of a new epoch is not known yet
    decision: Fresh | Adopt | Continue | Resume
    copied: frozenset[TableName]  # tables that would be copied from their start
    continued: frozenset[TableName]  # tables whose copy would continue
    # tables that the log has without a copy, and that get none
    skipped: frozenset[TableName] = frozenset()
    losses: tuple[Loss, ...] = ()  # tables whose topics have lost records


def foresee(environment: Environment, slot_standing: SlotStanding) -> Outlook:
    """Return the forecast of a start: the decision, and the tables that are copied.

    Raises SlotError: log and server are inconsistent, or the slot cannot be used or created;
    LogError: a topic of the frontier was deleted or recreated.
    """
    decision = slot_standing.decision(environment)
    tables = frozenset(environment.topics)
    initial = tables if not environment.settings.capture.skip_snapshot else frozenset[TableName]()
    match decision:
        case Fresh(drop_slot=drop):
            slots = len(environment.settings.capture.slots)
            check_room(environment.connection, slots=0 if drop else slots, senders=slots)
            return Outlook(decision=decision, copied=initial, continued=frozenset())
        case Adopt():
            _check_slot(environment, slot_standing)
            return Outlook(decision=decision, copied=initial, continued=frozenset())
        case Continue():
            _check_slot(environment, slot_standing)
            return Outlook(decision=decision, copied=frozenset(), continued=initial)
        case Resume(frontier=frontier, added=added):
            _check_slot(environment, slot_standing)
            lost = environment.check_topics(frontier)
            backfill = slot_standing.unfinished_copies(decision)
            continued = frozenset(copy.table for copy in copies_of(backfill)) & tables
            if environment.settings.capture.on_incompatible == "resnapshot":
                lost |= unpublished(environment, frontier, backfill)
            table_losses = losses(environment, frontier, backfill)
            lost |= {
                loss.table for loss in table_losses if loss.answer is Reaction.COPY
            } - continued
            skipped = skipped_tables(environment, decision, backfill)
            return Outlook(
                decision=decision,
                copied=(frozenset(added) - skipped.new - continued) | lost,
                continued=continued - lost,
                skipped=skipped.kept,
                losses=tuple(table_losses),
            )


def uncarried(environment: Environment, decision: Resume) -> dict[TableName, SchemaConflictError]:
    """Return the errors of tables that cannot continue under the schemas of their records.

    The registry has lost these schemas, or the records lack generated columns that the stream
    sends from now on.
    """
    frontier, tables = decision.frontier, environment.tables
    errors: dict[TableName, SchemaConflictError | None] = {}
    for topic, table in frontier.tables.items():
        if environment.topics.get(table) != topic:
            continue
        relation = environment.relations[table]
        if any(frontier.ends.get(topic, ())):
            errors[table] = tables.forgotten(relation, frontier.key_ids.get(topic))
        errors[table] = errors.get(table) or tables.uncarried(relation)
    return {table: error for table, error in errors.items() if error is not None}


def known_keys(environment: Environment, frontier: Frontier) -> dict[str, int]:
    """Return the ids of key schemas in a frontier, except of empty topics with lost schemas.

    The next record there gets a new id, which harms nothing because no older key is on the topic.
    """
    tables = environment.tables
    return {
        topic: number
        for topic, number in frontier.key_ids.items()
        if any(frontier.ends.get(topic, ()))
        or (relation := environment.relations.get(frontier.tables[topic])) is None
        or environment.topics[relation.name] != topic
        or tables.forgotten(relation, number) is None
    }


def _check_slot(environment: Environment, slot_standing: SlotStanding) -> None:
    assert slot_standing.slot is not None  # noqa: S101 - decide continues only with a slot
    check_slot(slot_standing.slot)
    check_room(environment.connection, senders=len(environment.settings.capture.slots))


def rehearse_publication(
    environment: Environment, slot_standing: SlotStanding, outlook: Outlook
) -> PublicationChange:
    """Check on the server whether the publication could be created or used; changes nothing.

    Raises SourceError: it could not; SlotError: a table was removed from it.
    """
    decision = outlook.decision
    frontier = decision.frontier if isinstance(decision, Resume) else None
    as_it_is = isinstance(decision, Adopt)
    return publish(
        environment,
        frontier,
        slot_standing.unfinished_copies(decision),
        rehearse=True,
        as_it_is=as_it_is,
    )


def refuse_first(environment: Environment) -> SlotStanding:
    """Raise the errors that would stop capture later, before topics and slot are created.

    Returns:
        The state of the slot according to log and server.

    Raises ChangelogError: capture cannot start; see each family.
    """
    check_limit(environment.refused, environment.settings.capture)
    refuse_shared(environment)
    slot_standing = standing(environment)
    outlook = foresee(environment, slot_standing)
    rehearse_publication(environment, slot_standing, outlook)
    if isinstance(outlook.decision, Resume):
        for table, error in uncarried(environment, outlook.decision).items():
            copied_anew = table in outlook.copied | outlook.continued
            if not copied_anew and answer(error, environment.settings.capture) is Reaction.STOP:
                raise with_way_out(error)
    _check_writes(environment, outlook)
    if environment.settings.capture.on_error == "log":
        return slot_standing  # a table that fails is excluded instead
    copied = [environment.relations[table] for table in sorted(outlook.copied | outlook.continued)]
    check_readable(environment.connection, copied)
    for table in sorted(outlook.copied):
        try:
            environment.tables.check(environment.relations[table], fresh=True)
        except SchemaConflictError as error:
            raise with_way_out(error, copying=True) from None
    return slot_standing


def _check_writes(environment: Environment, outlook: Outlook) -> None:
    """Check that a standby allows the requested changes.

    Raises:
        SourceError: a copy needs its primary; or tables without a key would be copied.
        ConfigurationError: a failover slot or groups of tables are not possible on this server.
    """
    if environment.settings.capture.failover_slot:
        version = environment.connection.server_version
        if environment.is_standby or version < FAILOVER_SLOTS:
            raise ConfigurationError(
                "--failover-slot is for primaries from PostgreSQL 17 on",
                hint="leave it out; a standby's own slot stays when the standby is promoted",
            )
    if environment.is_standby and environment.settings.capture.groups:
        raise ConfigurationError(
            "capture.groups are for primaries: this server is a standby",
            hint="leave the groups out, or capture from the primary",
        )
    copied = outlook.copied | outlook.continued
    if not environment.is_standby or not copied:
        return
    _ = environment.writer  # raises if the marks of the copy cannot be written
    unkeyed = sorted(table for table in copied if not environment.relations[table].key)
    if unkeyed:
        raise SourceError(
            "tables without a primary key cannot be copied from a standby, whose snapshots do not "
            f"say what runs: {', '.join(map(str, unkeyed))}",
            hint="leave them out (--exclude), or capture from the primary",
        )


def _facts(status: SlotStatus | None) -> SlotFacts | None:
    if status is None:
        return None
    slot_lsn = status.confirmed_flush_lsn or Lsn(0)
    return SlotFacts(
        confirmed_flush_lsn=slot_lsn,
        there=tuple(status.together),
        furthest=next((name for name, lsn in status.together.items() if lsn == slot_lsn), ""),
        lost=_why_lost(status) if status.wal_status == "lost" else "",
    )


def _why_lost(status: SlotStatus) -> str:
    why = why_lost(status.invalidation)
    return f'"{status.name}": {why}' if status.invalidation == MISSING else why
