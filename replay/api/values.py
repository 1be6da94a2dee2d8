"""Tables, frontiers and verdicts of a log: frozen values that display themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.api.sheet import MOST_ROWS, Sheet, SheetValue
from replay.cut.cut import Cut
from replay.verdict.limits import moment_text
from replay.verdict.verdict import Verdict


def moment_of(ts_us: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(ts_us / 1_000_000, UTC)


def short(table: TableName) -> str:
    """Return a table's name, without the schema where that is `public`."""
    return table.table if table.schema == "public" else str(table)


@dataclass(frozen=True, slots=True, repr=False)
class LogFrontier(SheetValue):
    """An exact cut across all topics, at which states are read.

    Attributes:
        slot: the slot that it was captured from.
        epoch: grows when the slot is lost or made again.
        lsn: all transactions before it are on the log.
        time: when the last of them was committed.
        tables: the tables that it contains.
        record: as it is on the log.
    """

    slot: str
    epoch: int
    lsn: Lsn
    time: datetime
    tables: tuple[str, ...]
    record: FrontierRecord = field(compare=False)

    @classmethod
    def of(cls, record: FrontierRecord) -> LogFrontier:
        """Convert the record of a frontier."""
        frontier = record.frontier
        return cls(
            slot=frontier.slot,
            epoch=frontier.epoch,
            lsn=frontier.lsn,
            time=moment_of(frontier.ts_us),
            tables=tuple(sorted(map(short, frontier.tables.values()))),
            record=record,
        )

    def sheet(self) -> Sheet:
        """Return it as a table."""
        row = (str(self.lsn), self.time.isoformat(), str(self.epoch), ", ".join(self.tables))
        return Sheet(f'frontier of slot "{self.slot}"', ("LSN", "time", "epoch", "tables"), [row])


@dataclass(frozen=True, slots=True, repr=False)
class LogFrontiers(SheetValue):
    """The frontiers that are still on the log, the oldest first."""

    found: tuple[LogFrontier, ...]

    def __len__(self) -> int:
        """Return the number of frontiers."""
        return len(self.found)

    def __iter__(self) -> Iterator[LogFrontier]:
        """Iterate over the frontiers."""
        return iter(self.found)

    def __getitem__(self, place: int) -> LogFrontier:
        """Return one by its place."""
        return self.found[place]

    def sheet(self) -> Sheet:
        """Return the newest frontiers as a table."""
        newest = self.found[-MOST_ROWS:][::-1]
        rows = [
            (str(frontier.lsn), frontier.time.isoformat(), str(frontier.epoch))
            for frontier in newest
        ]
        columns = ("LSN", "time", "epoch")
        return Sheet("frontiers, the newest first", columns, rows, count=len(self.found))


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """Whether the state of a table can be read exactly.

    Attributes:
        table: its name.
        kind: `exact`, `exact-until`, `follow` or `not-exact`.
        is_exact: whether a read that begins now can be.
        until: when it must have ended; None where that is not limited, or it cannot be exact.
        reasons: why not, or what limits it.
        remedies: what to do.
    """

    table: str
    kind: str
    is_exact: bool
    until: datetime | None
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]

    @classmethod
    def of(cls, table: str, verdict: Verdict) -> TableVerdict:
        """Convert a verdict on one table."""
        deadline = verdict.deadline_ms
        return cls(
            table=table,
            kind=verdict.kind.value,
            is_exact=verdict.allows_read,
            until=None if deadline is None else _moment_ms(deadline),
            reasons=verdict.reasons,
            remedies=verdict.remedies,
        )


def _moment_ms(ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a retention of "for ever"
        return datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class LogVerdict(SheetValue):
    """Whether the log can give the exact states at its newest frontier, and until when.

    Attributes:
        lsn: of the frontier.
        is_exact: whether every table can be read exactly now.
        until: when a read of all tables must have ended.
        tables: the verdict on each.
        text: the verdict on all, as one line.
    """

    lsn: Lsn
    is_exact: bool
    until: datetime | None
    tables: tuple[TableVerdict, ...]
    text: str

    @classmethod
    def of(cls, cut: Cut) -> LogVerdict:
        """Return the verdict of a cut."""
        whole = TableVerdict.of("", cut.verdict)
        tables = tuple(
            TableVerdict.of(short(table), cut.verdict.topics.get(topic, cut.verdict))
            for table, topic in sorted(cut.topics.items())
        )
        text = str(cut.verdict)
        return cls(cut.record.frontier.lsn, whole.is_exact, whole.until, tables, text)

    def sheet(self) -> Sheet:
        """Return it as a table."""
        rows = [
            (
                table.table,
                table.kind,
                "" if table.until is None else moment_text(int(table.until.timestamp() * 1000)),
                "; ".join(table.remedies or table.reasons),
            )
            for table in self.tables[:MOST_ROWS]
        ]
        columns = ("table", "verdict", "until", "why, or what to do")
        return Sheet(
            f"at LSN {self.lsn}", columns, rows, notes=(self.text,), count=len(self.tables)
        )


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table that is on the log.

    Attributes:
        table: its name, without the schema where that is `public`.
        topic: the topic of its records.
        partitions: of the topic.
        records_at_most: offsets up to the frontier, gaps counted.
        has_key: whether it has a primary key.
    """

    table: str
    topic: str
    partitions: int
    records_at_most: int
    has_key: bool


@dataclass(frozen=True, slots=True, repr=False)
class LogTables(SheetValue):
    """The tables that the newest frontier contains.

    Attributes:
        lsn: of the frontier.
        found: each of them, by name.
    """

    lsn: Lsn
    found: tuple[TableEntry, ...]

    @classmethod
    def of(cls, cut: Cut) -> LogTables:
        """Return the tables of a cut."""
        frontier = cut.record.frontier
        entries = (
            TableEntry(
                table=short(table),
                topic=topic,
                partitions=len(frontier.ends[topic]),
                records_at_most=cut.offset_count(topic),
                has_key=frontier.scope_of(topic).keyed,
            )
            for table, topic in sorted(cut.topics.items())
        )
        return cls(frontier.lsn, tuple(entries))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tables."""
        return tuple(entry.table for entry in self.found)

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.found)

    def __iter__(self) -> Iterator[TableEntry]:
        """Iterate over the tables."""
        return iter(self.found)

    def sheet(self) -> Sheet:
        """Return the tables as a table of their facts."""
        columns = ("table", "topic", "partitions", "records at most", "key")
        rows = [_entry(entry) for entry in self.found[:MOST_ROWS]]
        return Sheet(f"tables at LSN {self.lsn}", columns, rows, count=len(self.found))


def _entry(entry: TableEntry) -> Sequence[str]:
    key = "primary key" if entry.has_key else "none"
    return entry.table, entry.topic, str(entry.partitions), f"{entry.records_at_most:,}", key
