"""The publication of one attempt: created or altered by the settings, or only checked; watched."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from changelog.capture.start.environment import Environment
from changelog.contract.base.errors import (
    ConfigurationError,
    LookAgainError,
    SlotError,
    SourceError,
)
from changelog.contract.log.backfill import BackfillRecord, TableBackfill, copies_of
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import OPERATIONS
from changelog.contract.log.standing import PublicationVersion
from changelog.contract.rows.relation import TableName
from changelog.source.connect.standby import HINT, await_replay
from changelog.source.tables.publication import (
    PublicationChange,
    WantedPublication,
    use_publication,
)
from changelog.source.tables.published import publication_versions, sends_still

log = logging.getLogger("changelog.capture")


def publish(
    environment: Environment,
    frontier: Frontier | None,
    backfill: BackfillRecord | None = None,
    *,
    rehearse: bool = False,
    as_it_is: bool = False,
) -> PublicationChange:
    """Make the publication contain exactly the captured tables, or check that it does.

    Returns:
        The changes made, such as tables whose row filter was another one before.

    The stream continues from `frontier` and `backfill`. With `rehearse` nothing is changed. With
    `as_it_is` the publication is only checked, because PostgreSQL decodes older WAL by the
    publication of that time.

    Raises:
        SlotError: a table of the frontier was removed: its changes since then are lost.
        LookAgainError: a table whose stream continues vanished since it was listed.
        SourceError: the publication cannot be created or used.
    """
    name = environment.settings.capture.publication
    begun = [table for table in copies_of(backfill) if table.since is not None]
    streamed = bool(begun) or (frontier is not None and bool(frontier.tables))
    gone = unpublished(environment, frontier, backfill)
    _check_there(environment, gone)
    # Tables that were out of the publication for a while. Somebody else's row filter makes a new
    # entry too, but such a table is copied again anyway.
    readded = gone & environment.groups.sent(environment.connection)
    is_repaired = rehearse and environment.settings.capture.on_incompatible == "resnapshot"
    if not is_repaired:
        _refuse_moved(environment, _streamed(environment, frontier, backfill))
        _refuse_lost(environment, gone - readded, "was dropped or lost tables")
    scopes = [] if frontier is None else list(frontier.scopes.values())
    scopes += [table.scope for table in begun]
    # All tables have the same operations: they are a property of the publication.
    before = next((scope.operations for scope in scopes), OPERATIONS)
    publication = WantedPublication(
        tables={table: environment.rules.where(table) for table in environment.relations},
        operations=environment.rules.operations,
        before=before if streamed else None,
        filtered_before=any(scope.rows for scope in scopes),
        full=environment.full,
        as_before=_filtered_as_before(environment, frontier, begun) - gone,
    )
    if environment.settings.capture.create_publication and not as_it_is and environment.can_write:
        writer = environment.writer
        change = environment.groups.make(writer, publication, rehearse=rehearse)
        if writer is not environment.connection and not rehearse:
            await_replay(environment.connection, writer)
    else:
        change = _used_publication(environment, name, publication)
    if not is_repaired:
        _refuse_lost(environment, readded - change.refiltered, "was without tables for a while")
    _check_there(environment, change.vanished & _streamed(environment, frontier, backfill))
    for table in sorted(change.vanished):
        log.info("table %s vanished: it is not captured", table.said, extra={"table": str(table)})
    if not rehearse:
        environment.filters = dict(change.filters)
        environment.publication = _publication_now(environment)
    return change


def unpublished(
    environment: Environment, frontier: Frontier | None, backfill: BackfillRecord | None
) -> set[TableName]:
    """Return the tables whose stream continues, but has a gap in the publication.

    The publication does not have the table, or was without it for a while. A table that was
    dropped and created again counts, because it is another table.
    """
    streamed = _streamed(environment, frontier, backfill)
    if not streamed:
        return set()
    sent = environment.groups.sent(environment.connection)
    return streamed - (sent - _unsent_meanwhile(environment, streamed))


def check_publication(environment: Environment) -> None:
    """Check that nobody has removed anything from the publication since `publish`.

    Called before each frontier: PostgreSQL silently leaves out the changes of a table that was
    removed from the publication.

    Raises LookAgainError: it was altered or dropped, and the next attempt repairs that;
    SourceError: the same, and the settings do not allow a repair.
    """
    name = environment.settings.capture.publication
    now = _publication_now(environment)
    if now == environment.publication:
        return
    if not sends_still(environment.connection, environment.publication, now):
        is_repaired = environment.settings.capture.on_incompatible == "resnapshot"
        error_type = LookAgainError if is_repaired else SourceError
        raise error_type(
            f'the publication "{name}" was altered while capture runs',
            hint="start capture again: it says what is missing",
        )
    environment.publication = now


def _unsent_meanwhile(environment: Environment, streamed: Collection[TableName]) -> set[TableName]:
    """Return the tables that were out of the publication for a while and are in it again."""
    standings = environment.frontiers.standings(environment.settings.slot)
    before = standings.publication if standings is not None else None
    now = _publication_now(environment)
    if before is None or now is None:
        return set()
    oids = now.taken_out_since(before)
    return {table for table in streamed if oids is None or environment.relations[table].oid in oids}


def _publication_now(environment: Environment) -> PublicationVersion | None:
    main, *groups = environment.groups.publications
    return publication_versions(environment.connection, main, groups)


def _streamed(
    environment: Environment, frontier: Frontier | None, backfill: BackfillRecord | None
) -> set[TableName]:
    """Return the tables whose changes are on the log up to the start of the stream."""
    copied = copies_of(backfill)
    excluded = {table.table for table in copied if table.is_excluded and table.since is None}
    begun = {table.table for table in copied if table.since is not None}
    spoken = set(frontier.tables.values()) if frontier is not None else set()
    return ((spoken | begun) & set(environment.relations)) - excluded


def _refuse_lost(environment: Environment, tables: Collection[TableName], change: str) -> None:
    if tables:
        raise SlotError(
            f'the publication "{environment.settings.capture.publication}" {change}, whose changes '
            "since then are lost: " + ", ".join(str(table) for table in sorted(tables)),
            hint="start with `--on-incompatible resnapshot`: it copies these tables anew",
        )


def _refuse_moved(environment: Environment, tables: Collection[TableName]) -> None:
    """Refuse to move tables to another group: each slot would have some of their changes."""
    moved = environment.groups.elsewhere(environment.connection, tables)
    if moved:
        senders = ", ".join(f'{table} by "{name}"' for table, name in sorted(moved.items()))
        raise ConfigurationError(
            f"tables are sent by the publication of another group than before: {senders}",
            hint="name the groups as before; or start with `--on-incompatible resnapshot`: it "
            "copies these tables anew",
        )


def _check_there(environment: Environment, tables: Collection[TableName]) -> None:
    """Check that tables still have the object ids that were listed at the start.

    Raises LookAgainError: one was dropped, renamed or moved since.
    """
    now = environment.catalogue.names() if tables else {}
    gone = sorted(table for table in tables if now.get(environment.relations[table].oid) != table)
    if gone:
        raise LookAgainError("tables vanished: " + ", ".join(map(str, gone)))


def _filtered_as_before(
    environment: Environment, frontier: Frontier | None, begun: Iterable[TableBackfill]
) -> frozenset[TableName]:
    """Return the tables whose row filter on the log is that of the settings."""
    of_log = {} if frontier is None else frontier.tables
    rows = {table: frontier.scope_of(topic).rows for topic, table in of_log.items() if frontier}
    rows |= {copy.table: copy.scope.rows for copy in begun}
    return frozenset(
        table
        for table in environment.relations
        if rows.get(table) == environment.scope_of(table).rows
    )


def _used_publication(
    environment: Environment, name: str, publication: WantedPublication
) -> PublicationChange:
    try:
        return use_publication(environment.connection, name, publication)
    except SourceError as error:
        if environment.settings.capture.create_publication and not environment.can_write:
            error.hint = f"on a standby none can be made; have it made at its primary: {HINT}"
        raise
