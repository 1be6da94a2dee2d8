"""An archive of one topic, written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import pyarrow as pa

from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, value_schema
from replay.archive.manifest import ArchivedSchemas, ArchivedTopic, Segment
from replay.archive.store import FRONTIERS, RECORDS, SEGMENTS, Archive
from tests.support.builders import KEY_SCHEMA_ID, VALUE_SCHEMA_ID, make_codec, make_relation

TOPIC, THINGS = "things", TableName("public", "things")
RELATION = make_relation()
CODEC = make_codec(RELATION)
SCHEMAS = ArchivedSchemas(
    key_id=KEY_SCHEMA_ID,
    key=key_schema(RELATION),
    writers={VALUE_SCHEMA_ID: value_schema(RELATION)},
    reader_id=VALUE_SCHEMA_ID,
)
START = datetime(2026, 1, 1, tzinfo=UTC)


class HandArchive:
    """Writes segments of a topic of two partitions: even ids are in the first."""

    def __init__(self, place: str) -> None:
        self.archive = Archive(place)
        self.segments: list[Segment] = []
        self._rows: list[list[dict[str, object]]] = [[], []]
        self._done = [0, 0]
        self._lsn = 100
        self._frontiers: list[FrontierRecord] = []

    def put(self, number: int, name: str | None) -> None:
        """Write a row, or a tombstone where it has no name."""
        self._lsn += 10
        op = Op.DELETE if name is None else Op.UPDATE
        headers = encode_headers(Position(1, Lsn(self._lsn), 0), op, 0)
        key = (b"%d" % number,)
        rows = self._rows[number % 2]
        rows.append(
            {
                "partition": number % 2,
                "offset": len(rows),
                "timestamp": START,
                "key": CODEC.encode_key(key),
                "value": None if name is None else CODEC.encode_value((*key, name.encode())),
                "headers": [{"key": header, "value": value} for header, value in headers],
            }
        )

    def freeze(self) -> FrontierRecord:
        """Write a frontier over all that was put."""
        frontier = Frontier(
            slot="slot",
            epoch=1,
            lsn=Lsn(self._lsn + 1),
            ts_us=self._lsn * 1_000_000,
            cluster_id="cluster",
            tables={TOPIC: THINGS},
            topic_ids={TOPIC: "id-1"},
            ends={TOPIC: (len(self._rows[0]), len(self._rows[1]))},
        )
        last = self._frontiers[-1].offset if self._frontiers else -1
        if self.segments:
            last = max(last, self.segments[-1].record.offset)
        self._frontiers.append(FrontierRecord(frontier, last + 1, 0))
        return self._frontiers[-1]

    def seal(self, *, base: str = "", is_dense: bool = True, commits: bool = True) -> Segment:
        """Write a segment with all since the one before, up to a frontier of its own."""
        record = self.freeze()
        number = len(self.segments) + 1
        base = base or ("it was not archived before" if number == 1 else "")
        starts = (0, 0) if base else tuple(self._done)
        ends = record.frontier.ends[TOPIC]
        folder = f"{SEGMENTS}/{number:08d}-hand"
        files = [
            self.archive.write(
                f"{folder}/{TOPIC}/{partition}-{start}-{end}.parquet",
                pa.Table.from_pylist(self._rows[partition][start:end], schema=RECORDS),
                (partition, start, end),
            )
            for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
            if start < end
        ]
        frontiers = self._frontiers if self.segments else [record]
        table = pa.table(
            {
                "offset": [one.offset for one in frontiers],
                "appended_ms": [one.appended_ms for one in frontiers],
                "frontier": [one.frontier.to_json() for one in frontiers],
            },
            schema=FRONTIERS,
        )
        place = (0, frontiers[0].offset, record.offset + 1)
        segment = Segment(
            number=number,
            before=sha256(self.segments[-1].to_bytes()).hexdigest() if self.segments else "",
            at=START,
            record=record,
            frontiers=self.archive.write(f"{folder}/frontiers.parquet", table, place),
            frontier_topic_id="frontiers",
            is_dense=is_dense,
            topics={
                TOPIC: ArchivedTopic(
                    topic_id="id-1",
                    starts=starts,
                    ends=ends,
                    base=base,
                    files=tuple(files),
                    schemas=SCHEMAS if base else None,
                )
            },
        )
        if commits:
            self.archive.commit(segment)
            self.segments.append(segment)
            self._done, self._frontiers = list(ends), []
        return segment
