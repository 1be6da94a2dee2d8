"""Verify the log against PostgreSQL itself, row by row, while both go on.

A temporary slot exports a snapshot at an LSN V. Once a frontier has passed V, the fold of the
records of transactions before V must equal the tables as that snapshot shows them. Writers need
not stop. When capture does not run, the frontier can still count as past V: if the slot has no
row change pending between the two, nothing was written in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import psycopg2

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import LogError, NoFrontierError, SlotError, ViewError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.scope import Scope
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import LoggedColumn
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.verify.compare.compare import Comparison
from views.verify.compare.report import Mismatch, VerifyReport
from views.verify.log.decode import Decoder, survivors_of
from views.verify.log.states import Folded, FrontierTables
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN
from views.verify.processes.scratch import MEMORY_LIMIT, first_row, scratch
from views.verify.records.read import read_frontiers
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.source.snapshot import (
    Snapshot,
    TextTable,
    children_of,
    connect,
    copy_table,
    count_rows,
    open_snapshot,
    row_filter,
    text_columns,
    why_unreadable,
)
from views.verify.values.canonical import writer
from views.verify.values.types import Type, quoted

_POLL_SECONDS = 0.3
_ROW_CHANGES = frozenset(b"IUDT")
_PEEKED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRequest:
    """A request to verify tables against the source."""

    postgres: str  # connection string of the source
    kafka: KafkaConnection  # the brokers
    registry: RegistryConnection  # the schema registry
    slot: str  # capture's slot
    publication: str  # capture's publication
    topic_prefix: str = ""  # before each topic
    tables: tuple[TableName, ...] = ()  # their names; empty for all captured ones
    timeout_seconds: float = 60.0  # how long to wait for the frontier
    groups: tuple[str, ...] = ()  # the publications of capture's groups of tables
    work_directory: Path | None = None  # for scratch files
    memory_limit: str = MEMORY_LIMIT  # DuckDB's
    max_differences: int = 20  # how many mismatched rows a report shows

    @property
    def publications(self) -> tuple[str, ...]:
        """Return all publications of capture."""
        return (self.publication, *self.groups)


Say = Callable[[str], None]


def verify_source(
    request: SourceRequest, say: Say = lambda _: None, steps: Steps = UNSEEN
) -> tuple[VerifyReport, ...]:
    """Compare the captured tables with the source at one LSN; one report a table.

    Raises ChangelogError: source, log or registry cannot be read, or the frontier does not get to
    the snapshot in time.
    """
    latest = _latest(request)
    tables = request.tables or tuple(sorted(latest.tables.values()))
    absent_tables = () if request.tables else sorted({*latest.excluded} - {*tables})
    for table in tables:
        if latest.topic_of(table) is None:
            raise ViewError(
                f'slot "{request.slot}": table "{table}" {latest.why_absent(table)}',
                hint=f"on the log: {', '.join(map(str, sorted(latest.tables.values())))}",
            )
    steps.more(len(tables))
    with (
        open_snapshot(request.postgres) as snapshot,
        scratch(request.work_directory, request.memory_limit) as database,
    ):
        if latest.system_id and latest.system_id != snapshot.system_id:
            raise LogError(
                f"the log is of PostgreSQL system {latest.system_id}, "
                f"the source is {snapshot.system_id}",
                hint="check that the source is the one that was captured",
            )
        say(f"snapshot at {snapshot.lsn}")
        frontier = _frontier_past(request, snapshot, say)
        say(f"frontier at {frontier.lsn}")
        log = FrontierTables(
            database,
            request.kafka,
            request.registry,
            frontier,
            work_directory=request.work_directory,
        )
        reports = []
        for table in tables:
            steps.begin(str(table))
            # A named table that cannot be read ends the command by its error; without names it is
            # reported among the others.
            why = "" if request.tables else why_unreadable(snapshot, table)
            cut = _Cut(request, database, log, snapshot, frontier)
            reports.append(_not_verified(table, why) if why else _verify_table(cut, table))
            steps.done()
        absent = (_not_verified(table, latest.why_absent(table)) for table in absent_tables)
        return (*reports, *absent)


def _latest(request: SourceRequest) -> Frontier:
    newest = None
    topic = frontier_topic(request.topic_prefix)
    for frontier in read_frontiers(request.kafka, topic, request.slot):
        newest = frontier
    if newest is None:
        raise NoFrontierError(
            f'topic "{topic}" has no frontier of slot "{request.slot}"',
            hint="wait for capture's first snapshot, or name the right slot and prefix",
        )
    return newest


def _frontier_past(request: SourceRequest, snapshot: Snapshot, say: Say) -> Frontier:
    """Return the first frontier at or past the snapshot; wait for it."""
    deadline = time.monotonic() + request.timeout_seconds
    topic = frontier_topic(request.topic_prefix)
    waiting = False
    while True:
        first, last = first_past(read_frontiers(request.kafka, topic, request.slot), snapshot.lsn)
        if first is not None:
            return first
        if last is not None and _nothing_between(request, last, snapshot.lsn):
            say("capture does not run, and nothing was written since its last frontier")
            return last
        if time.monotonic() > deadline:
            raise LogError(
                f'the frontier of slot "{request.slot}" did not get to {snapshot.lsn} in '
                f"{request.timeout_seconds:g} s; it is at {last.lsn if last else 'no place yet'}",
                hint="capture must be running: start `changelog capture`, or give a longer "
                "--timeout",
            )
        if not waiting:
            say(f"waiting for the frontier to pass {snapshot.lsn}")
            waiting = True
        time.sleep(_POLL_SECONDS)


def first_past(frontiers: Iterable[Frontier], lsn: Lsn) -> tuple[Frontier | None, Frontier | None]:
    """Return the first frontier of the newest epoch at or past an LSN, and the newest one.

    LSNs of an older epoch are of another server, or of one that has been put back since.
    """
    first = last = None
    for frontier in frontiers:
        if last is not None and frontier.epoch != last.epoch:
            first = None
        last = frontier
        if first is None and frontier.lsn >= lsn:
            first = frontier
    return first, last


def _nothing_between(request: SourceRequest, frontier: Frontier, end: Lsn) -> bool:
    """Tell whether capture's slot is idle and holds no row change from the frontier to `end`."""
    connection = connect(request.postgres)
    try:
        connection.set_session(autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s", [request.slot]
            )
            slot = cursor.fetchone()
            if slot is None:
                raise SlotError(
                    f'slot "{request.slot}" does not exist, so the log cannot catch up',
                    hint="start `changelog capture`",
                )
            if slot[0]:
                return False
            cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes("
                "%s, %s, %s, 'proto_version', '1', 'publication_names', %s)",
                [request.slot, str(end), _PEEKED, _quoted(request.publications)],
            )
            return not _has_changes([bytes(row[0]) for row in cursor], frontier.lsn, end)
    except psycopg2.OperationalError:
        return False  # capture took the slot in this moment: it will move the frontier
    finally:
        connection.close()


def _quoted(publications: Sequence[str]) -> str:
    """Return the names for the plugin; any slot decodes the tables of all publications."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in publications)


def _has_changes(messages: Sequence[bytes], start: Lsn, end: Lsn) -> bool:
    """Tell whether a transaction that commits in `[start, end)` changes a row."""
    commit = 0
    for message in messages:
        if message[:1] == b"B":
            commit = int.from_bytes(message[1:9], "big")
        elif message[0] in _ROW_CHANGES and start <= commit < end:
            return True
    return len(messages) >= _PEEKED


@dataclass(frozen=True, slots=True)
class _Cut:
    """One snapshot of the source and the log at the first frontier past it."""

    request: SourceRequest
    database: duckdb.DuckDBPyConnection
    log: FrontierTables
    snapshot: Snapshot
    frontier: Frontier


def _is_in_between(frontier: Frontier, topic: str, lsn: Lsn) -> bool:
    """Tell whether the frontier has records of a topic only from after `lsn`, or not at all."""
    since = frontier.since.get(topic)
    truncated = since is not None and since.epoch == frontier.epoch and since.commit_lsn >= lsn
    return not topic or truncated or frontier.whole.get(topic, Lsn(0)) >= lsn


def _verify_table(cut: _Cut, table: TableName) -> VerifyReport:
    request, database, snapshot, frontier = cut.request, cut.database, cut.snapshot, cut.frontier
    started = time.monotonic()
    heirs = children_of(snapshot, table)
    topic = frontier.topic_of(table) or ""
    scope = frontier.scope_of(topic)
    if problems := _problems(scope):
        return _not_verified(table, *problems)
    where = row_filter(snapshot, request.publications, table) if scope.rows else ""
    if scope.rows and not where:
        return _not_verified(table, "the publication does not filter its rows any more")
    if _is_in_between(frontier, topic, snapshot.lsn):
        return _not_verified(table, "truncated or snapshotted anew in this moment: verify it again")
    folded = cut.log.fold(table, before=snapshot.lsn)
    if folded.decoder is None or folded.schema is None:
        return _never_written(snapshot, table, folded, where, _only(table, heirs))
    key = folded.schema.key
    columns = tuple(c for c in folded.decoder.columns if scope.mask_of(c.column) is None)
    if not set(key) <= {column.column for column in columns}:
        return _not_verified(table, "its key is masked, so no row can be found again")
    expected = copy_table(snapshot, table, columns, database, "source", where=where)
    served = _write_state(database, folded, folded.decoder, columns)
    names = dict(zip(text_columns(columns), (c.column for c in columns), strict=True))
    comparison = Comparison(
        database,
        expected="source",
        served="log",
        columns=[(name, Type("string")) for name in names],
        key=[name for name, column in names.items() if column in key],
    )
    mismatches, _ = comparison.run()
    differences = tuple(
        _difference(row, names, _offset(database, topic, row.key))
        for row in comparison.differences(request.max_differences)
    )
    for name in ("source", "log"):
        database.execute(f"DROP TABLE {quoted(name)}")
    return VerifyReport(
        view=str(table),
        verified=mismatches == 0,
        rows_expected=expected,
        rows_served=served,
        mismatches=mismatches,
        differences=differences,
        seconds=time.monotonic() - started,
        notes=(*scope.notes(), *_only(table, heirs)),
        certificate={
            "table": str(table),
            "lsn": str(snapshot.lsn),
            "frontier": str(frontier.lsn),
            "records_read": folded.records,
            **({"not_compared": list(scope.notes())} if scope.notes() else {}),
        },
    )


def _difference(row: Mismatch, names: Mapping[str, str], offset: str | None) -> Mismatch:
    """Return a difference under the table's own column names."""
    key = {names[name]: value for name, value in row.key.items()}
    column = None if row.column is None else names[row.column]
    return replace(row, key=key, column=column, offset=offset)


def _only(table: TableName, heirs: Sequence[str]) -> tuple[str, ...]:
    """Return the note that rows of inheriting tables were not compared, if there are any."""
    if not heirs:
        return ()
    return (f"compared with ONLY {table}: rows of {', '.join(heirs)} are in SELECT * of it too",)


def _problems(scope: Scope) -> tuple[str, ...]:
    """Return the reasons why a topic cannot be compared with its table; empty when it can."""
    problems = scope.obstacles()
    if not scope.keyed:
        problems = ("its table has no primary key, so its rows cannot be told apart", *problems)
    if not problems:
        return ()
    return (*problems, "so the topic is not the table")


def _not_verified(table: TableName, *notes: str) -> VerifyReport:
    return VerifyReport(
        view=str(table), verified=None, rows_expected=0, rows_served=0, mismatches=0, notes=notes
    )


def _never_written(
    snapshot: Snapshot, table: TableName, folded: Folded, where: str, notes: Sequence[str]
) -> VerifyReport:
    """Compare a table without a row on the log, perhaps with tombstones: it must be empty."""
    rows = count_rows(snapshot, table, where=where)
    return VerifyReport(
        view=str(table),
        verified=rows == 0,
        rows_expected=rows,
        rows_served=0,
        mismatches=rows,
        notes=(_no_row(folded.records), *notes),
        certificate={"table": str(table), "records_read": folded.records},
    )


def _no_row(tombstones: int) -> str:
    """Return the note that a topic has no row.

    >>> _no_row(0), _no_row(3)
    ('the log has never had a row of it', 'the log has no row of it, but 3 tombstones')
    """
    if tombstones:
        return f"the log has no row of it, but {tombstones:,} tombstones"
    return "the log has never had a row of it"


def _write_state(
    database: duckdb.DuckDBPyConnection,
    folded: Folded,
    decoder: Decoder,
    columns: Sequence[LoggedColumn],
) -> int:
    """Write the survivors as canonical texts into the table `log`, with their offsets."""
    compared = [place for place, column in enumerate(decoder.columns) if column in columns]
    writers = [writer(column.type) for column in columns]
    into = TextTable(database, "log", [*text_columns(columns), PARTITION_COLUMN, OFFSET_COLUMN])
    for batch in folded.survivors.batches():
        places, decoded = decoder.decode(survivors_of(batch))
        texts = [
            [None if value is None else write(value) for value in decoded[place]]
            for write, place in zip(writers, compared, strict=True)
        ]
        for row, (partition, offset) in zip(zip(*texts, strict=True), places, strict=True):
            into.add([*row, str(partition), str(offset)])
    into.flush()
    for column in (FAULT_COLUMN, ID_COLUMN):
        database.execute(f"ALTER TABLE log ADD COLUMN {column} VARCHAR")
    return into.rows


def _offset(database: duckdb.DuckDBPyConnection, topic: str, key: Mapping[str, str]) -> str | None:
    where = " AND ".join(f"{quoted(name)} = ?" for name in key)
    row = first_row(
        database,
        f"SELECT {PARTITION_COLUMN}, {OFFSET_COLUMN} FROM log WHERE {where}",
        list(key.values()),
    )
    return None if row is None else f"{topic}:{row[0]}:{row[1]}"
