"""The states of tables at a frontier, derived here from the log alone."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from changelog.contract.connection import KafkaConnection, RegistryConnection
from changelog.contract.errors import CorruptRecordError, LogError, ViewError
from changelog.contract.frontier import Frontier
from changelog.contract.lsn import Lsn
from changelog.contract.relation import TableName
from changelog.contract.schema import LoggedSchema, read_schema
from views.verify.decode import Decoder
from views.verify.fold import fold
from views.verify.read import read_topic
from views.verify.registry import Schemas
from views.verify.tables import State, create_view, load_state, newest_schema_id


@dataclass(frozen=True, slots=True)
class Folded:
    """A table's survivors, not yet decoded.

    Attributes:
        table: which.
        topic: where its records lie.
        records: how many were read.
        rows: how many rows are alive.
        survivors: name of their DuckDB table.
        decoder: decodes them; None when the log has never had a value of the table.
        schema: the newest schema, None likewise.
    """

    table: TableName
    topic: str
    records: int
    rows: int
    survivors: str
    decoder: Decoder | None
    schema: LoggedSchema | None


class Log:
    """Reads and folds tables of one frontier into one database."""

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        kafka: KafkaConnection,
        registry: RegistryConnection,
        frontier: Frontier,
    ) -> None:
        self._database = database
        self._kafka = kafka
        self._schemas = Schemas(registry)
        self._frontier = frontier
        self._count = 0

    def fold(self, table: TableName, *, before: Lsn | None = None) -> Folded:
        """Read a table's records and keep the survivors.

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
        raw, survivors = f"__raw_{self._count}", f"__survivors_{self._count}"
        records = read_topic(self._kafka, self._frontier, topic, self._database, raw)
        rows = fold(
            self._database,
            raw,
            survivors,
            epoch=self._frontier.epoch,
            since=self._frontier.since.get(topic),
            before=before,
        )
        newest = newest_schema_id(self._database, raw)
        self._database.execute(f"DROP TABLE {raw}")
        decoder = schema = None
        if newest is not None:
            try:
                decoder = Decoder(self._schemas, topic, newest)
                schema = read_schema(self._schemas.text(newest))
            except CorruptRecordError as error:
                raise CorruptRecordError(
                    f'topic "{topic}", schema {newest}: {error.args[0]}', hint=error.hint
                ) from error
        return Folded(table, topic, records, rows, survivors, decoder, schema)

    def load(self, folded: Folded) -> State:
        """Decode a table's survivors into a typed table, under the name that views use.

        Raises:
            LogError: a value has no exact place, or the columns of the table are not known
                since it has never had a row.
            CorruptRecordError: a record does not decode.
        """
        if folded.decoder is None or folded.schema is None:
            raise LogError(
                f'topic "{folded.topic}" has never had a row, so the columns of table '
                f'"{folded.table}" are not known',
                hint="leave the table out until it has a row",
            )
        base = folded.survivors.replace("survivors", "state")
        columns, key = folded.schema.columns, folded.schema.key
        state = State(folded.table, folded.topic, base, columns, key)
        load_state(self._database, state, folded.decoder, folded.survivors)
        self._database.execute(f"DROP TABLE {folded.survivors}")
        create_view(self._database, state)
        return state
