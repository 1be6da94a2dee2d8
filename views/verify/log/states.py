"""The states of tables at a frontier, derived from the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import CorruptRecordError, LogError, ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.order import refuse_own_places
from changelog.contract.log.topic import schema_topic_of
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedSchema, SchemaPin
from changelog.native.columns import SCHEMA
from changelog.runtime.process.memory import return_freed
from views.base.pace import Tell, quiet
from views.verify.log.bag import add_places, keep_rows, read_changes, take_changes
from views.verify.log.columns import is_by_column
from views.verify.log.declared import DeclaredDecoder, DeclaredReader, read_declared
from views.verify.log.decode import AvroDecoder, Decoder, DocumentDecoder
from views.verify.log.registry import ArchivedSchemas, WriterSchemas
from views.verify.log.tables import MANY_ROWS, TableState, create_view, load_state
from views.verify.log.versions import add_versions, read_versions
from views.verify.processes.scratch import fill, make_table
from views.verify.records.archived import LogArchive
from views.verify.records.read import beginnings, read_schema_topic
from views.verify.records.survivors import FoldedBuckets, FoldedTable, SurvivorRules, Survivors
from views.verify.records.topic import TopicRecords, read_archived, read_topic
from views.verify.values.faults import Quarantine
from views.verify.values.types import quoted

_WORTH_RETURNING = 20_000
"""Records whose reading leaves memory that is worth the time to return it."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A table's survivors, not yet folded or decoded."""

    table: TableName  # its name
    topic: str  # of its records
    records: int  # how many were read
    survivors: Survivors  # the last records of its keys
    decoder: Decoder | None  # decodes them; None when the log has never had a value of the table
    schema: LoggedSchema | None  # that they are read as; None in the same case
    # takes the records that cannot be read, None where one is an error
    quarantine: Quarantine | None = None
    raw: str | None = None  # name of the DuckDB table of all records, if they are kept
    # name of the table with the position of each row; None if the table has a key
    places: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The state of a table, and how it was obtained."""

    state: TableState  # the state
    records: int  # how many were read for it
    left_out: int = 0  # how many of them could not be read
    # of versions, the LSN from which on none is missing; None for states
    complete_from: Lsn | None = None
    note: str = ""  # for the report, about how it was obtained
    # the frontier that it goes on from, and the LSN at which the topic was last read from its
    # start; None if it was read from its start now
    since: Mapping[str, str] | None = None


class FrontierTables:
    """Reads and folds tables of one frontier into one database."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        frontier: Frontier,
        *,
        pins: Mapping[str, SchemaPin] | None = None,
        quarantines: bool = False,
        keeps_records: bool = False,
        declared: Mapping[TableName, DeclaredLog] | None = None,
        work_directory: Path | None = None,
        tell: Tell = quiet,
        schemas: WriterSchemas | None = None,
        archive: LogArchive | None = None,
    ) -> None:
        """Store the arguments; reads nothing.

        `frontier`: of the states. `pins`: by topic the versions to read by; without one, the newest
        version in a record. `quarantines`: leave out the rows whose records cannot be read, and
        count these. `keeps_records`: keep all records in the database, superseded ones too.
        `declared`: the tables that are logs of other programs. `work_directory`: the folder for
        files, None for the system's temporary one. `schemas`: a cache of schemas; None for a new
        one. `archive`: an archive of the log to read in place of brokers and registry.
        """
        self._declared = declared or {}
        self._tell = tell
        self._work_directory = work_directory
        self._keeps_records = keeps_records
        self._pins = pins or {}
        self._quarantines = quarantines
        self._noted: dict[str, dict[str, list[str]]] = {}
        self._database = database
        self._kafka = kafka
        self._archive = archive
        own = WriterSchemas(registry) if archive is None else ArchivedSchemas(archive.texts())
        self._schemas = schemas or own
        self._frontier = frontier
        self._count = self._loaded = 0

    def fold(
        self, table: TableName, *, before: Lsn | None = None, behind: Frontier | None = None
    ) -> Folded:
        """Read a table's records, to be folded when their survivors are asked for.

        `before`: only transactions whose commit LSN is before it; None for all. `behind`: only the
        records after another frontier of the same log, in which case the survivors include the
        tombstones of deleted keys; None for all.

        Raises:
            ViewError: the table is not captured.
            LogError: the topic is not what the frontier says.
            CorruptRecordError: a record breaks the contract.
        """
        topic = self._frontier.topic_of(table)
        if topic is None:
            why = self._frontier.why_absent(table)
            raise ViewError(f'slot "{self._frontier.slot}": table "{table}" {why}')
        self._count += 1
        quarantine = Quarantine() if self._quarantines else None
        if table in self._declared:
            return self._fold_declared(self._declared[table], quarantine)
        frontier = self._frontier.of(topic)
        if not frontier.scope_of(topic).keyed:
            return self._fold_bag(table, topic)
        records = self._records(topic, frontier, behind, quarantine)
        since = frontier.since.get(topic)
        if behind is not None:  # older records are resends
            since = Position(behind.epoch, behind.lsn, 0)
        rules = SurvivorRules(
            epoch=frontier.epoch,
            since=since,
            before=before,
            tells_deleted=behind is not None,
        )
        try:
            newest = records.newest_schema_id
            decoder, schema = self.reader(table, topic, newest, quarantine) or (None, None)
            raw = self._kept(records) if self._keeps_records else None
        except BaseException:
            records.buckets.close()
            raise
        if decoder is None:
            records.buckets.close()
        survivors = FoldedBuckets(self._database, records.buckets, rules)
        return Folded(table, topic, records.count, survivors, decoder, schema, quarantine, raw)

    def _records(
        self,
        topic: str,
        frontier: Frontier,
        behind: Frontier | None,
        quarantine: Quarantine | None,
    ) -> TopicRecords:
        pin = self._pins.get(topic)
        key_id = None if pin is None else pin.key
        if self._archive is not None:
            return read_archived(
                self._archive,
                frontier,
                topic,
                key_id=key_id,
                work_directory=self._work_directory,
                tell=self._tell,
            )
        return read_topic(
            self._kafka,
            frontier,
            topic,
            key_id=key_id,
            behind=None if behind is None else behind.ends[topic],
            quarantine=quarantine,
            work_directory=self._work_directory,
            tell=self._tell,
        )

    def _kept(self, records: TopicRecords) -> str:
        """Copy all records into a table of DuckDB; returns its name."""
        raw = f"__raw_{self._count}"
        make_table(self._database, raw, SCHEMA)
        buckets = records.buckets
        fill(self._database, raw, (t for n in range(len(buckets)) for t in buckets.tables(n)))
        return raw

    def _fold_bag(self, table: TableName, topic: str) -> Folded:
        survivors = f"__survivors_{self._count}"
        frontier = self._frontier.of(topic)
        if self._archive is not None:
            begins = beginnings(frontier, topic, self._archive.starts(frontier, topic))
            archived = self._archive.messages(frontier, topic, begins)
            records = take_changes(archived, frontier, topic, self._database, survivors)
        else:
            records = read_changes(self._kafka, frontier, topic, self._database, survivors)
        try:
            reader = self.reader(table, topic, records.newest_schema_id, None)
        except BaseException:
            self._database.execute(f"DROP TABLE {quoted(survivors)}")
            raise
        decoder, schema = reader or (None, None)
        places = None
        if decoder is not None and schema is not None:
            refuse_own_places(schema)
            keep_rows(self._database, survivors, topic, decoder)
            places = f"__places_{self._count}"
            self._database.execute(
                f"CREATE OR REPLACE TABLE {quoted(places)} AS "
                f"SELECT part, off, lsn, sequence FROM {quoted(survivors)}"
            )
        rows = FoldedTable(self._database, survivors)
        return Folded(table, topic, records.count, rows, decoder, schema, places=places)

    def versions(self, table: TableName) -> Taken:
        """Return the versions of a table's rows.

        Raises the errors of `fold` and `load`.
        """
        topic = self._frontier.topic_of(table)
        if topic is None:
            why = self._frontier.why_absent(table)
            raise ViewError(f'slot "{self._frontier.slot}": table "{table}" {why}')
        self._count += 1
        pin, versions = self._pins.get(topic), f"__versions_{self._count}"
        read = read_versions(
            self._kafka,
            self._frontier.of(topic),
            topic,
            self._database,
            versions,
            key_id=None if pin is None else pin.key,
        )
        survivors = f"__survivors_{self._count}"
        self._database.execute(
            f"CREATE TABLE {quoted(survivors)} AS SELECT part, off, value FROM {quoted(versions)}"
        )
        decoder, schema = self.reader(table, topic, read.newest_schema_id, None) or (None, None)
        rows = FoldedTable(self._database, survivors)
        state = self.load(Folded(table, topic, read.count, rows, decoder, schema))
        state = add_versions(self._database, state, versions, read.complete_from)
        create_view(self._database, state)
        self._database.execute(f"DROP TABLE {quoted(versions)}")
        return Taken(state=state, records=read.count, complete_from=read.complete_from)

    def _fold_declared(self, log: DeclaredLog, quarantine: Quarantine | None) -> Folded:
        survivors = f"__survivors_{self._count}"
        pin = self._pins.get(log.topic)
        reader = DeclaredReader(log, self._schemas, 0 if pin is None else pin.value)
        records = read_declared(
            self._kafka,
            self._frontier,
            reader,
            self._database,
            survivors=survivors,
            quarantine=quarantine,
        )
        return Folded(
            log.table,
            log.topic,
            records,
            FoldedTable(self._database, survivors),
            DeclaredDecoder(reader, quarantine),
            LoggedSchema(log.table, log.key, reader.columns),
            quarantine,
        )

    def reader(
        self,
        table: TableName,
        topic: str,
        newest: int | None,
        quarantine: Quarantine | None,
    ) -> tuple[Decoder, LoggedSchema] | None:
        """Return the decoder of a captured topic and the schema that its rows are read as, or None.

        `newest`: schema id of its newest value, for a topic without a pin; None if it has no value,
        and then it has no decoder. `quarantine`: takes the records that cannot be read; None makes
        one an error.
        """
        frontier = self._frontier.of(topic)
        form, pin = frontier.scope_of(topic).form, self._pins.get(topic)
        if form.output is Output.JSON:
            values = self._noted_values(topic, frontier.tables.get(topic, table))
            if not values:
                return None
            text = values[-1 if pin is None else pin.value]
            decoder: Decoder = DocumentDecoder(topic, text, form.envelope, quarantine)
            return decoder, read_value_schema(text)
        newest = newest if pin is None else pin.value
        if newest is None:
            return None
        try:
            decoder = AvroDecoder(self._schemas, topic, newest, form.envelope, quarantine)
            return decoder, read_value_schema(self._schemas.text(newest))
        except CorruptRecordError as error:
            raise CorruptRecordError(
                f'topic "{topic}", schema {newest}: {error.args[0]}', hint=error.hint
            ) from error

    def _noted_values(self, topic: str, source: TableName) -> list[str]:
        """Return the schemas of a topic's documents, the oldest first."""
        if self._archive is not None:
            return self._archive.values_of(topic)
        noted = schema_topic_of(topic, source)
        if noted not in self._noted:
            self._noted[noted] = read_schema_topic(self._kafka, noted)
        return self._noted[noted].get(f"{topic}-value", [])

    def schema_text(self, schema_id: int) -> str:
        """Return the text of a schema.

        Raises CorruptRecordError: the registry does not know it; UnavailableLogError: the registry
        does not answer.
        """
        return self._schemas.text(schema_id)

    def form(self, folded: Folded, *, keyed: bool = False) -> TableState:
        """Return the form of a table's rows, which are not read yet; see `load`."""
        if folded.decoder is None or folded.schema is None:
            raise LogError(
                f'topic "{folded.topic}" has no row, so the columns of table '
                f'"{folded.table}" are not known',
                hint="leave the table out until it has a row",
            )
        self._loaded += 1
        pin = self._pins.get(folded.topic)
        return TableState(
            folded.table,
            folded.topic,
            f"__state_{self._loaded}",
            folded.schema.columns,
            folded.schema.key,
            is_keyed=keyed and folded.quarantine is None and is_by_column(folded.decoder),
            choices=() if pin is None else pin.choices,
        )

    def load(self, folded: Folded, *, keyed: bool = False) -> TableState:
        """Decode a table's survivors into a typed table, under the name that views use.

        `keyed`: whether the table also gets the bytes of each row's key, if rows are read by
        column.

        Raises LogError: the columns of the table are not known, since its topic has no row;
        CorruptRecordError: a record does not decode.
        """
        state = self.form(folded, keyed=keyed)
        assert folded.decoder is not None  # noqa: S101 - else it has no form
        is_large = folded.records >= MANY_ROWS
        state = load_state(
            self._database, state, folded.decoder, folded.survivors, is_large=is_large
        )
        if folded.places is not None:
            state = add_places(self._database, state, folded.places)
            self._database.execute(f"DROP TABLE {quoted(folded.places)}")
        create_view(self._database, state)
        if folded.records >= _WORTH_RETURNING:
            return_freed()
        return state
