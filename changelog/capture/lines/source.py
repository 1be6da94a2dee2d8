"""The source of lines: which tables, by which publication and slot, and what the snapshot has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import psycopg2
from psycopg2 import sql

from changelog.capture.rows.rules import CaptureRules, catalogue_of
from changelog.capture.start.rights import to_alter
from changelog.config import Project
from changelog.contract.base.errors import SourceError
from changelog.contract.log.standing import PublicationVersion
from changelog.contract.rows.relation import Relation, TableName
from changelog.native import Texts
from changelog.postgres.connection import Connection
from changelog.sections import CaptureSettings
from changelog.source.connect.connect import connect, source_errors
from changelog.source.connect.replica_identity import Identity, make_full, restore
from changelog.source.connect.retention import SlotStatus
from changelog.source.connect.system import check_ready, identify
from changelog.source.connect.versions import COPIES_SLOTS, need
from changelog.source.snapshot.snapshot import (
    begin_snapshot,
    chunks_of,
    parse_row,
    plan_tables,
    read_chunk,
)
from changelog.source.stream.slot import ExportedSnapshot, create_slot, inspect_slot
from changelog.source.tables.catalogue import Catalogue, check_capturable, select_tables
from changelog.source.tables.filter import TableFilter
from changelog.source.tables.publication import (
    WantedPublication,
    make_publication,
    sendable,
    use_publication,
)
from changelog.source.tables.published import publication_version, sends_still

log = logging.getLogger("changelog.capture")

_COPY = "SELECT pg_copy_logical_replication_slot(%s, %s, false)"
_BY_HAND = (
    "make or alter it by hand, WITH (publish_via_partition_root = true): beside a slot that others "
    "made, publications are left as they are"
)
OnRow = Callable[[Relation, tuple[bytes | None, ...]], None]


def uses_given_slot(capture: CaptureSettings) -> bool:
    """Tell whether changes come from a slot that others have made, by its own name."""
    return not capture.create_slot or capture.first_lsn is not None


@dataclass(slots=True, kw_only=True)
class LineSource:
    """Source of the lines: a snapshot and a stream."""

    settings: Project
    connection: Connection = field(repr=False)  # in autocommit mode
    system_id: str  # the server's identity
    relations: dict[TableName, Relation]  # the captured tables
    catalogue: Catalogue  # of the source
    rules: CaptureRules  # what of the tables is captured
    slot: str  # its name
    publication: str  # its name
    # what is going to get REPLICA IDENTITY FULL, as it is now
    altered: list[Identity] = field(default_factory=list)
    has_made_publication: bool = False  # whether the publication was not there before
    _full: frozenset[TableName] = frozenset()
    _altered_here: list[Identity] = field(default_factory=list)
    _version: PublicationVersion | None = None
    _filters: dict[TableName, str] = field(default_factory=dict)

    @classmethod
    def open(
        cls, settings: Project, connection: Connection, slot: str, *, gives_full: bool = False
    ) -> LineSource:
        """Look at the tables; raises as `changelog capture` does where one cannot be captured.

        A publication of ours has the slot's name. With `gives_full` tables may get REPLICA IDENTITY
        FULL, where that is asked for.

        Raises ChangelogError: what stands against it; see each family.
        """
        capture = settings.capture
        check_ready(connection)
        system = identify(settings.postgres)
        rules = CaptureRules(capture, str(connection.info.dbname))
        # A line has the row before the change, as far as the stream brings it.
        catalogue = catalogue_of(connection, capture, gives_full=gives_full, tells_old=True)
        table_filter = TableFilter(capture.tables, capture.exclude)
        selected = select_tables(catalogue.tables(), table_filter)
        check_capturable(selected)
        if not selected:
            raise SourceError("no table matches", hint="look at --tables and --exclude")
        for object_name in catalogue.uncaptured(table_filter):
            log.info("not captured: %s", object_name)
        if sendable(rules.operations, connection.server_version) != rules.operations:
            log.warning(
                "not among the lines: truncations, which PostgreSQL before 11 does not send"
            )
        relations = {table.name: table.relation for table in selected}
        rules.check(relations.values())
        return cls(
            settings=settings,
            connection=connection,
            system_id=system.system_id,
            relations=relations,
            catalogue=catalogue,
            rules=rules,
            slot=slot,
            publication=slot
            if capture.create_publication and not uses_given_slot(capture)
            else capture.publication,
            altered=to_alter(connection, selected),
            _full=frozenset(table.name for table in selected if table.will_be_full),
        )

    def make(self) -> None:
        """Alter the tables that are to be altered, and have the publication send all.

        Raises SourceError: that cannot be.
        """
        if self.altered:
            make_full(self.connection, [identity.table for identity in self.altered])
            self._altered_here, self.altered = self.altered, []
            for identity in self._altered_here:
                log.info("table %s has REPLICA IDENTITY FULL now", identity.table.said)
        self.catalogue.gives_full = None  # it is as it was taken to be
        self.publish()

    def take_back(self) -> None:
        """Undo `make`; log the parts that cannot be undone."""
        if self.has_made_publication:
            self.unpublish()
        if self._altered_here and not self.connection.closed:
            try:
                restore(self.connection, self._altered_here)
            except SourceError as error:
                log.warning("%s", error)

    def unpublish(self) -> None:
        """Drop the publication; one that cannot be dropped is told."""
        if self.connection.closed:
            return
        drop = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self.publication))
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(drop)
        except psycopg2.Error as error:
            log.warning('the publication "%s" stays: %s', self.publication, error)

    def publish(self) -> None:
        """Make the publication send the tables.

        Raises SourceError: it cannot be made or used.
        """
        publication = WantedPublication(
            tables={table: self.rules.where(table) for table in self.relations},
            operations=self.rules.operations,
            full=self._full,
        )
        capture = self.settings.capture
        # Old WAL is decoded by the publication of its time: a given slot's is left as it is.
        if uses_given_slot(capture):
            change = use_publication(self.connection, self.publication, publication, hint=_BY_HAND)
        elif capture.create_publication:
            change = make_publication(self.connection, self.publication, publication)
        else:
            change = use_publication(self.connection, self.publication, publication)
        self._filters, self.has_made_publication = dict(change.filters), change.created
        self._version = publication_version(self.connection, self.publication)

    def check_publication(self) -> None:
        """Check that nobody has taken anything out of the publication.

        Raises SourceError: somebody has.
        """
        now = publication_version(self.connection, self.publication)
        if now != self._version and not sends_still(self.connection, self._version, now):
            raise SourceError(f'the publication "{self.publication}" was altered meanwhile')
        self._version = now

    def standing(self) -> SlotStatus | None:
        """Return the slot, None where it is not there."""
        return inspect_slot(self.connection, self.slot)

    def snapshot(self, temporary: str, stop: Callable[[], bool]) -> ExportedSnapshot:
        """Make a temporary slot with its snapshot; `stop` is asked meanwhile."""
        return create_slot(self.settings.postgres, temporary, temporary=True, stop=stop)

    def keep(self, snapshot: ExportedSnapshot) -> None:
        """Make the lasting slot from the temporary one, so that it exists only with a whole copy.

        Raises SourceError: there is no room for it.
        """
        failure = f'cannot make the slot "{self.slot}"'
        need(
            self.connection.server_version,
            COPIES_SLOTS,
            "--into, and a slot that stays with --print,",
            hint="--print with its temporary slot needs none",
        )
        with source_errors(self.connection, failure), self.connection.cursor() as cursor:
            cursor.execute(_COPY, (snapshot.slot, self.slot))

    def copy(self, snapshot_name: str, on_row: OnRow) -> int:
        """Read the rows of all tables in a snapshot; returns their number.

        Raises SourceError: they cannot be read.
        """
        rows = 0
        relations = list(self.relations.values())
        with closing(connect(self.settings.postgres)) as reader:
            plans = plan_tables(self.connection, relations)
            begin_snapshot(reader, snapshot_name, relations)
            for relation in relations:
                where = self._filters.get(relation.name, "")
                for chunk in chunks_of(plans[relation.oid].stores):
                    take = _each(relation, on_row)
                    rows += read_chunk(reader, relation, chunk, take, where=where)
        return rows


def _each(relation: Relation, on_row: OnRow) -> Callable[[Texts], None]:
    def take(lines: Texts) -> None:
        for line in _lines(lines):
            on_row(relation, parse_row(line))

    return take


def _lines(lines: Texts) -> Iterator[bytes]:
    return (lines[place] for place in range(len(lines)))
