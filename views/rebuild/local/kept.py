"""The local tables of a follower in one database, from which the next start goes on.

Each round commits in one step the new rows, its position in the logs, and in a journal what the
touched keys held before. It does so before any sink is sent something, so no sink is ever further
than the tables, whatever ends the process. Where a sink is behind, the journal has every row that
it may still show, and also the tables as they were at its position. A round leaves the journal
once all sinks have it.

A lock beside the file, the operating system's, lets one process have it: a second follower of the
same views, as there may be on another machine, keeps nothing.

What is kept is used only where all of it is as it was written: the file names the form that it has,
each table has a sum of all that it holds, and so has each entry of the journal. What a crash of the
whole machine takes away is the last rounds; then a sink is further than the tables, which is seen.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from changelog.avro.rows import DecodedBodies
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.runtime.process.scratch import ScratchFolder
from replay.base.config import ReplaySettings
from replay.base.failures import translated
from replay.base.record_place import FetchedRecord
from replay.broker.topic_state import TopicState
from replay.decode.schemas import TopicSchemas
from replay.store.increment import HeldTables
from views.rebuild.local.room import fitting
from views.rebuild.local.table import CACHE, LocalTable, RowRecord, Touched, digest_of, opened

log = logging.getLogger("changelog.views")

FOLDER = "_followed"
"""Below the warehouse."""
VERSION = 2
"""Of the form of the file, and of how rows are computed from it."""
MOST_ENTRIES = 1_000_000
"""Of the journal: where a sink is that far behind, the next start is Spark's."""
_SIDES = ("", "-wal", "-shm", "-journal")


class UnfitError(Exception):
    """A kept file cannot be gone on from; the text says why."""


def place_of(warehouse: str, views: Iterable[str]) -> Path | None:
    """Return the file of the follower of some views, or None where a warehouse is no folder here.

    A warehouse may be given as a URI.
    """
    root = _root(warehouse)
    name = hashlib.sha256("\n".join(sorted(views)).encode()).hexdigest()[:16]
    return None if root is None else root / f"{name}.sqlite"


def remove_of(warehouse: str, views: Iterable[str], *, but: Path | None = None) -> None:
    """Remove what followers of any of these views have kept, unless one of them has it open.

    Raises OSError: a file cannot be removed.
    """
    root, gone = _root(warehouse), set(views)
    for path in [] if root is None else root.glob("*.sqlite"):
        if path != but and gone & set(_views_in(path)) and (own := _taken(path)) is not None:
            try:
                _remove(path)
            finally:
                own.release()


def kept_of(warehouse: str, views: Iterable[str]) -> list[Path]:
    """Return the files that followers of any of these views have kept."""
    root, own = _root(warehouse), set(views)
    paths = [] if root is None else root.glob("*.sqlite")
    return [path for path in paths if own & set(_views_in(path))]


def _root(warehouse: str) -> Path | None:
    if not warehouse or ("://" in warehouse and not warehouse.startswith("file://")):
        return None
    return Path(warehouse.removeprefix("file://")).absolute() / FOLDER


def _views_in(path: Path) -> list[str]:
    try:
        with _opened_to_read(path) as database:
            return list(_fact(database, "views"))
    except (sqlite3.Error, UnfitError, ValueError, TypeError):
        return []


@contextmanager
def _opened_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a kept file that nobody writes to."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        yield database
    finally:
        database.close()


def _taken(path: Path) -> FileLock | None:
    """Return the lock of a kept file, or None while another process has it, or where none holds."""
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError, NotImplementedError):
        return None
    return lock


def _remove(path: Path) -> None:
    for side in _SIDES:
        path.with_name(path.name + side).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptView:
    """A view that was followed, as it was when the tables were filled."""

    generation: int  # the number that served
    definition: str  # fingerprint of what its rows were made by, besides the log
    declaration: Mapping[str, Any]  # how it was declared
    schema: str  # of its rows, in Spark's JSON
    columns: Sequence[tuple[str, str]]  # names and types
    # the position that each sink told of then; None where it told none. It had the rows of the
    # first round
    sinks: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class KeptRound:
    """A round that was committed."""

    number: int
    position: Position  # the first that the tables did not hold after it
    stand: str  # of the logs, see `stand_of`


def stand_text(stand: HeldTables) -> str:
    """Return the place of tables in their log as text."""
    record = stand.record
    return json.dumps(
        {
            "frontier": record.frontier.to_json(),
            "offset": record.offset,
            "appended_ms": record.appended_ms,
            "states": {topic: asdict(state) for topic, state in stand.states.items()},
        }
    )


def stand_of(
    text: str,
    topics: Mapping[TableName, str],
    schemas: Mapping[TableName, TopicSchemas],
    settings: ReplaySettings,
) -> HeldTables:
    """Return the place of tables in their log.

    Raises UnfitError: the text does not say it.
    """
    try:
        raw = json.loads(text)
        record = FrontierRecord(
            Frontier.from_json(raw["frontier"]), raw["offset"], raw["appended_ms"]
        )
        states = {topic: _state_of(state) for topic, state in raw["states"].items()}
    except (ValueError, KeyError, TypeError, CorruptRecordError) as error:
        raise UnfitError(f"its place in the log is not readable: {error!r}") from error
    return HeldTables(
        record=record, topics=topics, schemas=schemas, states=states, settings=settings
    )


def _state_of(raw: Mapping[str, Any]) -> TopicState:
    tuples = {name: tuple(raw[name]) for name in ("log_starts", "ends", "leader_epochs")}
    return TopicState(**{**raw, **tuples})


class LocalTables:
    """Keeps tables between the rounds of a follower, and its journal; a context manager.

    `decoded`: of records that other readers have read.
    """

    def __init__(self, decoded: DecodedBodies | None = None) -> None:
        self._decoded = decoded
        self._tables: dict[TableName, LocalTable] = {}
        self._scratch = ScratchFolder("follow")
        self._database: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._lock: FileLock | None = None
        self._is_kept = False
        self._number = 0
        self._entries = 0
        self._touched: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all tables; what is kept stays."""
        self.close()
        self._scratch.cleanup()

    @property
    def held(self) -> Mapping[TableName, LocalTable]:
        """Return the tables."""
        return self._tables

    @property
    def is_kept(self) -> bool:
        """Tell whether the next start can go on from the tables."""
        return self._is_kept

    def close(self) -> None:
        """Forget all tables here; what is kept of them stays."""
        if self._database is not None:
            self._database.close()
        if self._lock is not None:
            self._lock.release()
        self._tables, self._database, self._is_kept, self._lock = {}, None, False, None
        self._touched, self._entries = {}, 0

    def begin(self, path: Path | None) -> bool:
        """Begin without any table, in a file that stays, or in one that goes with the process.

        Returns whether it may stay: it is to, and no other process has it.
        """
        self.close()
        self._path = Path(self._scratch.name) / "tables.sqlite"
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _taken(path)
            if self._lock is None:
                log.warning("another process has %s: nothing is kept for the next start", path)
            else:
                self._path = path
        _remove(self._path)
        self._database = opened(self._path)
        self._number = 0
        return self._lock is not None

    def discard(self) -> None:
        """Keep nothing for the next start."""
        self._is_kept = False
        if self._path is not None:
            _remove(self._path)  # the open file serves this process until it is closed

    def fill(
        self,
        table: TableName,
        records: Iterable[FetchedRecord],
        schemas: TopicSchemas,
        columns: Sequence[str],
        position: Position,
        *,
        most: int = 0,
        proves: bool = False,
    ) -> None:
        """Fill a new local table.

        `records`: those of its live keys. `columns`: by which rows are to be found. `position`: the
        first that the records do not hold. `most`: how many records there may be. `proves`: whether
        the verifier holds them too.

        Raises UnknownValueError: it cannot be here.
        """
        if self._database is None:
            self.begin(None)
        assert self._database is not None and self._path is not None  # noqa: S101, PT018 - begun
        name = f"table{len(self._tables) + 1}"
        self._tables[table] = local_table = LocalTable(
            self._database, name, schemas, columns, decoded=self._decoded
        )
        with translated():
            live = ((k, v, p, o) for k, v, p, o in records if v is not None)
            folder = self._path.parent
            local_table.fill(fitting(table, live, most, folder, proves=proves), position)

    def keep(self, views: Mapping[str, KeptView], stand: HeldTables, position: Position) -> None:
        """Keep the tables for the next start, and from now on each round."""
        assert self._database is not None  # noqa: S101 - the tables are filled
        database = self._database
        database.executescript(
            "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);"
            "CREATE TABLE rounds (number INTEGER PRIMARY KEY, position TEXT, stand TEXT,"
            " sums TEXT, touched TEXT, entries INT);"
            "CREATE TABLE journal (number INT, tab TEXT, key BLOB, value BLOB, partition INT,"
            " offset INT, digest BLOB); CREATE INDEX journal_number ON journal (number);"
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
        )
        tables = {
            local.name: {"table": list(table), "columns": list(local.columns)}
            for table, local in self._tables.items()
        }
        facts = {
            "version": VERSION,
            "views": {name: asdict(view) for name, view in views.items()},
            "tables": tables,
            "begun": str(position),
        }
        database.execute("BEGIN")
        self._number = 1
        self._touched = {local.name: str(position) for local in self._tables.values()}
        self._put_round(position, stand_text(stand), 0)
        rows = [(name, json.dumps(value)) for name, value in facts.items()]
        database.executemany("INSERT INTO facts VALUES (?, ?)", rows)
        database.execute("COMMIT")
        self._is_kept = True

    def advance(
        self,
        changed: Mapping[TableName, Sequence[FetchedRecord]],
        position: Position,
        stand: HeldTables | None = None,
    ) -> dict[TableName, Touched]:
        """Apply the new records; returns the touched records of each table.

        `stand`: their place in the log, where they are kept.

        Raises UnknownValueError: a record cannot be read; the tables are of no use any more.
        """
        assert self._database is not None  # noqa: S101 - the tables are filled
        self._database.execute("BEGIN")
        try:
            touched = {
                table: self._tables[table].advance(records, position)
                for table, records in changed.items()
            }
            if self._is_kept and stand is not None:
                self._note(changed, touched, position, stand_text(stand))
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        return touched

    def _note(
        self,
        changed: Mapping[TableName, Sequence[FetchedRecord]],
        touched: Mapping[TableName, Touched],
        position: Position,
        stand: str,
    ) -> None:
        """Write a round and its part of the journal."""
        assert self._database is not None  # noqa: S101 - its caller looked
        self._number += 1
        entries: list[tuple[Any, ...]] = []
        for table, records in changed.items():
            name = self._tables[table].name
            older = {record.key: record for record in touched[table].older}
            for key, *_ in records:
                record = older.get(key)
                place = (None, None, None, _of_key(key)) if record is None else (
                    record.value, record.partition, record.offset, digest_of(record)
                )  # fmt: skip
                entries.append((self._number, name, key, *place))
            if records:
                self._touched[name] = str(position)
        self._database.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
        self._put_round(position, stand, len(entries))
        self._entries += len(entries)

    def _put_round(self, position: Position, stand: str, entries: int) -> None:
        assert self._database is not None  # noqa: S101 - its caller looked
        sums = {local.name: [local.count, local.sum] for local in self._tables.values()}
        self._database.execute(
            "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?)",
            (
                self._number, str(position), stand, json.dumps(sums), json.dumps(self._touched),
                entries,
            ),
        )  # fmt: skip

    def reached(self, position: Position) -> None:
        """Leave out of the journal what all sinks have: all before a position."""
        if not self._is_kept:
            return
        assert self._database is not None  # noqa: S101 - it is kept there
        base = max((kept.number for kept in self.rounds() if kept.position <= position), default=0)
        self._database.execute("BEGIN")
        self._database.execute("DELETE FROM rounds WHERE number < ?", (base,))
        gone = self._database.execute("DELETE FROM journal WHERE number <= ?", (base,))
        self._database.execute("COMMIT")
        self._entries -= gone.rowcount
        if self._entries > MOST_ENTRIES:
            self.discard()

    def open(self, path: Path) -> Mapping[str, KeptView]:
        """Open what an earlier follower has kept; returns its views.

        Raises UnfitError: it is of another form, or not whole.
        """
        self.close()
        self._lock = _taken(path)
        if self._lock is None:
            raise UnfitError("another process has it open")
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        with _readable():
            self._database.executescript(
                "PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;" + CACHE
            )
            query = "SELECT count(*) FROM sqlite_master WHERE name = 'facts'"
            if self._database.execute(query).fetchone() == (0,):
                raise UnfitError("an earlier start was ended while it wrote it")
            version = _fact(self._database, "version")
            if version != VERSION:
                raise UnfitError(f"it is of version {version}, and this is version {VERSION}")
            check = self._database.execute("PRAGMA quick_check(1)").fetchone()
            if check != ("ok",):
                raise UnfitError(f"the file is damaged: {check[0]}")
            return {
                name: KeptView(**{**view, "columns": [tuple(one) for one in view["columns"]]})
                for name, view in _fact(self._database, "views").items()
            }

    def adopt(
        self, schemas: Mapping[TableName, TopicSchemas], columns: Mapping[TableName, Sequence[str]]
    ) -> KeptRound:
        """Take the tables of the opened file; returns the round that they are at.

        `columns`: by which rows of each table are to be found.

        Raises UnfitError: they are others, or not as they were written; UnknownValueError: a row
        cannot be read.
        """
        assert self._database is not None  # noqa: S101 - it was opened
        with _readable():
            rounds = self.rounds()
            if not rounds:
                raise UnfitError("it has no round")
            newest = rounds[-1]
            query = "SELECT sums, touched FROM rounds WHERE number = ?"
            sums, touched = map(
                json.loads, self._database.execute(query, (newest.number,)).fetchone()
            )
            there = {}
            for name, one in _fact(self._database, "tables").items():
                there[TableName(*one["table"])] = name, one["columns"]
            if there.keys() != columns.keys():
                raise UnfitError("it has other tables")
            for table, (name, names) in there.items():
                if list(names) != list(columns[table]):
                    raise UnfitError(f"rows of {table} are found by other columns")
                local = LocalTable(
                    self._database, name, schemas[table], names,
                    is_there=True, decoded=self._decoded,
                )  # fmt: skip
                local.take(newest.position)
                if [local.count, local.sum] != sums[name]:
                    raise UnfitError(f"the rows of {table} are not those that were written")
                self._tables[table] = local
            self._check_journal()
        self._number, self._touched = newest.number, touched
        self._is_kept = True
        return newest

    def _check_journal(self) -> None:
        """Check that each entry of the journal is there, and as it was written."""
        assert self._database is not None  # noqa: S101 - it was opened
        names = {local.name: local for local in self._tables.values()}
        counts: dict[int, int] = {}
        for number, name, key, value, partition, offset, digest in self._database.execute(
            "SELECT * FROM journal"
        ):
            counts[number] = counts.get(number, 0) + 1
            expected = (
                _of_key(key) if value is None
                else digest_of(names[name].record(key, value, partition, offset))
            )  # fmt: skip
            if digest != expected:
                raise UnfitError("its journal is not the one that was written")
        rounds = self._database.execute("SELECT number, entries FROM rounds ORDER BY 1").fetchall()
        if {number: count for number, count in rounds[1:] if count} != counts:
            raise UnfitError("its journal is not whole")
        self._entries = sum(counts.values())

    def rounds(self) -> list[KeptRound]:
        """Return the last round that all sinks have, and the rounds after it."""
        assert self._database is not None  # noqa: S101 - its caller looked
        rows = self._database.execute("SELECT number, position, stand FROM rounds ORDER BY number")
        return [KeptRound(number, Position.parse(text), stand) for number, text, stand in rows]

    def lacks_from(
        self, tables: Iterable[TableName], position_of_sink: Position | None, begun: str | None
    ) -> Position | None:
        """Return the round from which on a sink lacks rows of some tables, or None for no rows.

        `position_of_sink`: the position that the sink tells of. `begun`: the one of when the tables
        were filled, as text.

        Raises UnfitError: what the sink lacks is not known.
        """
        assert self._database is not None  # noqa: S101 - the tables were adopted
        rounds = self.rounds()
        position = position_of_sink
        if (None if position is None else str(position)) == begun:
            position = Position.parse(_fact(self._database, "begun"))
        if position is None:
            raise UnfitError("a sink does not say how far it is")
        if position > rounds[-1].position:
            raise UnfitError(f"a sink is at {position}, further than {rounds[-1].position}")
        touched = [Position.parse(self._touched[self._tables[table].name]) for table in tables]
        if all(position >= last for last in touched):
            return None
        if position not in {kept.position for kept in rounds}:
            raise UnfitError(f"a sink is at {position}, which is none of its rounds")
        return position

    def since(self, position: Position) -> dict[TableName, Touched]:
        """Return the touched records of each table after a round.

        What a key has held in between counts as older, too: some sink may show it.
        """
        assert self._database is not None  # noqa: S101 - the tables were adopted
        first = self._number_at(position)
        touched = {}
        for table, local in self._tables.items():
            rows = self._database.execute(
                "SELECT key, value, partition, offset FROM journal WHERE number > ? AND tab = ?",
                (first, local.name),
            ).fetchall()
            older = tuple(local.record(*row) for row in rows if row[1] is not None)
            newer = tuple(local.of_keys({key for key, *_ in rows}))
            touched[table] = Touched(older, newer)
        return touched

    @contextmanager
    def as_before(self, position: Position) -> Iterator[None]:
        """Have in the tables, inside of the block, the rows that they had after a round."""
        assert self._database is not None  # noqa: S101 - the tables were adopted
        first = self._number_at(position)
        now = [(local, local.count, local.sum, local.until) for local in self._tables.values()]
        self._database.execute("BEGIN")
        try:
            for local in self._tables.values():
                rows = self._database.execute(
                    "SELECT key, value, partition, offset FROM journal"
                    " WHERE number > ? AND tab = ? ORDER BY number DESC",
                    (first, local.name),
                ).fetchall()
                # Of each key the oldest comes last, and counts.
                oldest = {key: (key, *rest) for key, *rest in rows}
                local.advance(oldest.values(), position)
                local.forget_whole()
            yield
        finally:
            self._database.execute("ROLLBACK")
            for local, local.count, local.sum, local.until in now:
                local.forget_whole()

    def _number_at(self, position: Position) -> int:
        return max(kept.number for kept in self.rounds() if kept.position == position)


def _of_key(key: bytes) -> bytes:
    return digest_of(RowRecord(key, b"", -1, -1, ()))


def _fact(database: sqlite3.Connection, name: str) -> Any:  # noqa: ANN401 - read from JSON
    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise UnfitError(f"it does not say its {name}")
    return json.loads(row[0])


@contextmanager
def _readable() -> Iterator[None]:
    """Make whatever a damaged file does an UnfitError."""
    try:
        yield
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise UnfitError(f"the file is damaged: {error}") from error
