"""A log in memory, and the verifier's keeper on it: no broker, no registry, a clock of its own."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import Relation, Row, TableName
from changelog.contract.rows.schema import SchemaPin, value_schema
from changelog.contract.rows.types import array_type, column_type
from changelog.native.columns import SCHEMA
from tests.support.builders import BIGINT, TEXT, TEXTS, decimal_type, make_relation
from views.verify.kept import keeper as keeping
from views.verify.kept.keeper import Keeper, Keeping
from views.verify.log import states
from views.verify.log.states import FrontierTables, Taken
from views.verify.records.read import TopicFacts
from views.verify.records.survivors import Buckets
from views.verify.records.topic import TopicRecords

TABLE = TableName("public", "things")
TOPIC = "p.things"
TYPES = {
    "id": BIGINT,
    "name": TEXT,
    "price": decimal_type(10, 2),
    "day": column_type("date", "date"),
    "seen": column_type("timestamptz", "timestamp with time zone"),
    "at": column_type("timestamp", "timestamp without time zone"),
    "ratio": column_type("float8", "double precision"),
    "small": column_type("int2", "smallint"),
    "real": column_type("float4", "real"),
    "flag": column_type("bool", "boolean"),
    "raw": column_type("bytea", "bytea"),
    "code": column_type("uuid", "uuid"),
    "big": column_type("numeric", "numeric"),
    "tags": TEXTS,
    "fares": array_type(decimal_type(12, 3), "numeric(12,3)[]"),
}
THINGS = make_relation(TYPES, name=TABLE)
ROWS: tuple[Row, ...] = (
    tuple([None] * (len(TYPES) - 1)),
    (
        b"it's \xc3\xa4",
        b"10.50",
        b"2013-01-01",
        b"2013-01-01 05:06:07.000008+00",
        b"12013-01-01 00:00:00",
        b"-0",
        b"-3",
        b"NaN",
        b"t",
        b"\\x00ff",
        b"0b1f8d0e-8f1b-4f6b-9d57-111111111111",
        b"12345678901234567890123456789012345678901234567890.5",
        b'{a,NULL,""}',
        b"{1.5,NULL}",
    ),
    (
        b"",
        b"NaN",
        b"infinity",
        b"-infinity",
        b"infinity",
        b"NaN",
        b"32767",
        b"-0",
        b"f",
        b"\\x",
        b"00000000-0000-0000-0000-000000000000",
        b"-0.00",
        b"{}",
        b"{}",
    ),
    (
        b"x" * 300,
        b"-0.05",
        b"0044-03-15 BC",
        b"0001-01-01 00:00:00+00 BC",
        b"1969-12-31 23:59:59.999999",
        b"Infinity",
        b"0",
        b"1e-30",
        None,
        b"\\x00",
        None,
        b"Infinity",
        b"{{a,b},{c,d}}",
        b"{NaN}",
    ),
)
"""Rows of every type, but for their keys; some values have no exact place in their columns."""
SETTINGS = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "1000000",
    "delete.retention.ms": "2000000",
}
BEGINNING_MS = 1_000_000_000_000
PIN = SchemaPin(key=1, value=2)


@dataclass
class KeptLog:
    """Records of one partition, and what the brokers say of it.

    Attributes:
        folder: of the warehouse.
        records: partition, offset, position, key, value and fault of each, as `intake` has them.
        appended: when each was, by the clock.
        gone: offsets of those that the cleaner has removed.
        now_ms: the clock, ours and the broker's.
        appended_ms: when frontiers are appended, None for now.
        changes: of the frontiers that are taken from here on.
    """

    folder: Path
    records: list[tuple[Any, ...]] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    relation: Relation = THINGS
    now_ms: int = BEGINNING_MS
    start: int = 0
    appended_ms: int | None = None
    lsn: int = 100
    changes: dict[str, Any] = field(default_factory=dict)
    pin: SchemaPin = PIN

    def put(self, key: int, row: Row | None) -> Position:
        """Write a row, or with none a tombstone, in a transaction of its own."""
        self.lsn += 8
        position = Position(1, Lsn(self.lsn), 0)
        self.again(position, key, row)
        return position

    def again(self, position: Position, key: int, row: Row | None) -> None:
        """Write a record at a position, as one that is sent again."""
        codec = RowCodec(
            self.relation, key_schema_id=self.pin.key or 0, value_schema_id=self.pin.value
        )
        self.appended.append(self.now_ms)
        text = b"%d" % key
        value = None if row is None else codec.encode_value((text, *row))
        self.records.append((0, len(self.records), *position, codec.encode_key((text,)), value, 0))

    def clean(self) -> None:
        """Remove all that the cleaner may: what is superseded, and tombstones after a while."""
        lag, retention = (int(self.settings[name]) for name in list(SETTINGS)[2:])
        old = [n for n, at in enumerate(self.appended) if at + lag <= self.now_ms]
        last = {self.records[n][5]: n for n in old}  # offsets grow as positions do
        for n in old:
            key, value = self.records[n][5:7]
            is_over = self.appended[last[key]] + lag + retention <= self.now_ms
            if n < last[key] or (value is None and is_over):
                self.gone.add(n)

    def frontier(self, **changes: Any) -> Frontier:
        made = Frontier(
            slot="slot",
            epoch=1,
            lsn=Lsn(self.lsn + 1),
            ts_us=self.now_ms * 1000,
            system_id="7",
            cluster_id="kafka",
            tables={TOPIC: TABLE},
            topic_ids={TOPIC: "id"},
            ends={TOPIC: (len(self.records),)},
            leader_epochs={TOPIC: (3,)},
        )
        return replace(made, **{**self.changes, **changes})

    @contextmanager
    def keeper(
        self, monkeypatch: Any, frontier: Frontier, *, goes_on: bool = True, begins: bool = True
    ):
        """Open a keeper; the database of its states beside it."""
        known = Keeping(
            warehouse=str(self.folder),
            frontier_topic="frontiers",
            offset=0,
            goes_on=goes_on,
            begins=begins,
        )
        with closing(duckdb.connect()) as database, monkeypatch.context() as patch:
            self._stand_in(patch)
            nobody: Any = None
            pins = {TOPIC: self.pin}
            tables = FrontierTables(database, nobody, nobody, frontier, pins=pins)
            tables._schemas = cast(Any, self)
            with (
                TemporaryDirectory() as here,
                Keeper(
                    known, database, tables, nobody, frontier, here=Path(here), pins=pins
                ) as made,
            ):
                yield made, database

    def proved(
        self, monkeypatch: Any, *, keeps: bool = True, **more: Any
    ) -> tuple[Taken, list[tuple[Any, ...]]]:
        """Take the state at a new frontier, and keep it; returns it and its rows."""
        with self.keeper(monkeypatch, self.frontier(), **more) as (keeper, database):
            taken = keeper.take(TABLE)
            found = rows(database, taken)
            if keeps:
                keeper.keep()
        return taken, found

    def text(self, schema_id: int) -> str:
        assert schema_id == self.pin.value
        return value_schema(self.relation)

    def _stand_in(self, patch: Any) -> None:
        patch.setattr(states, "read_topic", self._read)
        patch.setattr(keeping, "topic_settings", lambda *_: self.settings)
        patch.setattr(keeping, "topic_facts", lambda *_: TopicFacts("id", (self.start,)))
        patch.setattr(keeping, "unmoved", lambda *_: nullcontext())
        patch.setattr(keeping, "appended_ms", lambda *_: self.appended_ms or self.now_ms)
        patch.setattr(keeping, "now_ms", lambda: self.now_ms)

    def _read(self, _kafka: Any, frontier: Frontier, topic: str, **more: Any) -> TopicRecords:
        (start,) = more["behind"] or (self.start,)
        (end,) = frontier.ends[topic]
        read = [each for each in self.records[start:end] if each[1] not in self.gone]
        buckets = Buckets(2, None)
        for number in range(2):
            own = [each for each in read if each[5][-1] % 2 == number]
            columns = list(zip(*own, strict=True)) or [()] * len(SCHEMA)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
            if own:
                buckets.put(number, pa.Table.from_arrays(arrays, schema=SCHEMA))
        return TopicRecords(len(read), None, buckets)


def rows(database: duckdb.DuckDBPyConnection, taken: Taken) -> list[tuple[Any, ...]]:
    """Return the rows of a state, with the texts of values without an exact place, in order."""
    names = [row[0] for row in database.execute(f'DESCRIBE "{taken.state.base}"').fetchall()]
    texts = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in names if name != "__offset")
    found = database.execute(f'SELECT id, {texts} FROM "{taken.state.base}" ORDER BY id')
    return found.fetchall()


def is_whole(log: KeptLog, patch: pytest.MonkeyPatch, why: str) -> None:
    """Check that a proof reads the topic from its start, and says why."""
    taken, rows = log.proved(patch)
    assert taken.records == len(log.records) - log.start
    assert taken.since is None
    assert "was read from its topic's start" in taken.note
    assert why in taken.note
    assert rows == log.proved(patch, goes_on=False, keeps=False)[1]


def goes_on(log: KeptLog, patch: pytest.MonkeyPatch, records: int) -> None:
    """Check that a proof goes on from the kept state, and reads so many records."""
    taken, rows = log.proved(patch)
    assert (taken.records, taken.since is not None) == (records, True), taken.note
    assert rows == log.proved(patch, goes_on=False, keeps=False)[1]
