"""What is done with an input: by C and by Python, which have to come to the same."""

from __future__ import annotations

import hmac
import tempfile
from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

from confluent_kafka import Message, Producer

from changelog.contract.log.partition import partition_of
from changelog.contract.rows.codec import SchemaIds, key_of
from changelog.contract.rows.relation import Relation
from changelog.contract.rows.types import array_type
from changelog.native.compiled.library import lib
from changelog.native.compiled.loads import RowCopier
from changelog.native.headers import api
from changelog.native.loads import (
    AvroField,
    AvroKind,
    AvroRows,
    BatchLimits,
    BatchNews,
    CellForm,
    CopyCell,
    Slice,
)
from changelog.native.records import (
    FoldRecord,
    Mask,
    News,
    Record,
    Selection,
    StrangePlaceError,
    Transaction,
)
from changelog.source.snapshot.snapshot import parse_row
from changelog.source.stream.pgoutput import (
    DeleteMessage,
    InsertMessage,
    OldTuple,
    UpdateMessage,
    decode,
)
from tests.fuzz.inputs import Input
from tests.support.builders import (
    INTEGER,
    KEY_SCHEMA_ID,
    TEXT,
    VALUE_SCHEMA_ID,
    make_codec,
    make_relation,
)
from tests.support.copy_tuples import tuples_of
from tests.support.load_rows import csv_encoder, encoder, lines_of, text_encoder
from tests.support.native_ways import on
from tests.support.record_batches import TOPIC as BATCHED
from tests.support.record_batches import batch_of, record_of
from tests.support.source_texts import CASES

FFI = api()

WAYS = ("compiled", "plain")
IDS = SchemaIds(KEY_SCHEMA_ID, VALUE_SCHEMA_ID)
KINDS = [kind for kind, _ in CASES] + [array_type(kind, "x[]") for kind, _ in CASES]
_OPEN = Transaction(commit_lsn=500, ts_us=600, xid=7)
_STEP = 4
_FEW = make_relation({"id": INTEGER, "a": TEXT, "b": TEXT}, key=("id",))
_TEXTS = make_relation({"id": TEXT, "a": TEXT, "b": TEXT}, key=("id",))
_MASKS = Selection(
    width=3, places=(0, 1, 2), masks=(Mask.HASH, Mask.NONE, Mask.CONSTANT), constant=b"***"
)
_PREFIX = b"\0\0\0\0\7"
_WAIT_S = 10


def _relation_of(kind: int) -> Relation:
    return make_relation({"id": INTEGER, "x": KINDS[kind % len(KINDS)]}, key=("id",))


class Connection:
    """What libpq gives, one text after the other."""

    def __init__(self, texts: Input) -> None:
        self._left = [FFI.new("char[]", text) for text in texts]
        self._sizes = [len(text) for text in texts]
        self._given = 0
        self._kept = (
            FFI.callback("int(void *, char **, int)", self._get),
            FFI.callback("int(void *)", lambda _: 1),
            FFI.callback("void(void *)", lambda _: None),
        )
        self.libpq = FFI.new("libpq *", self._kept)

    def _get(self, _connection: Any, buffer: Any, _async: int) -> int:
        while self._given < len(self._left):
            place = self._given
            self._given += 1
            if self._sizes[place]:  # libpq gives no message without bytes
                buffer[0] = self._left[place]
                return self._sizes[place]
        return -1


def frames(some: Input) -> None:
    """Read messages of a replication connection."""
    found = []
    for way in WAYS:
        texts, told = on(way, "Texts")(), FFI.new("keepalives *")
        source = Connection(some)  # its functions live as long as it does
        done = on(way, "read_stream")(
            source.libpq, FFI.NULL, limit=20, most=1000, into=texts, status=told
        )
        said = (told.wal_end, told.reply, told.heard)
        runs = [
            (texts.alike(place), texts.commit_from(place), texts.whole_before(place, 1 << 60))
            for place in range(len(texts))
        ]
        rest = on(way, "Texts")()
        rest.add_range(texts, len(texts) // 2, len(texts))
        found.append((done, list(texts), said, runs, texts.behind_commit(), list(rest)))
    assert found[0] == found[1]


def copy_lines(some: Input) -> None:
    found = []
    for way in WAYS:
        texts = on(way, "Texts")()
        source = Connection(some)  # its functions live as long as it does
        done = on(way, "read_copy")(source.libpq, FFI.NULL, limit=20, most=1000, into=texts)
        found.append((done, list(texts)))
    assert found[0] == found[1]


def stream(some: Input) -> None:
    """Scan messages of pgoutput, and encode their rows."""
    found, runs = [], {}
    for way in WAYS:
        texts, run = on(way, "Texts")(some), on(way, "Run")()
        is_run = run.scan(texts, 0, len(texts), before=_OPEN, sequence=0, step=_STEP)
        spans = list(run.relations())
        rows = [run.row(number) for number in range(max((s.last for s in spans), default=-1) + 1)]
        told = (run.last, run.is_open, run.next_sequence, run.commits, run.end_lsn, run.xids)
        found.append((is_run, (spans, rows, told) if is_run else None))
        runs[way] = texts, run
    assert found[0] == found[1]
    if not found[0][0]:
        return
    texts, run = runs["compiled"]
    masked = replace(_MASKS, hash_key=some[0] or b"-")
    for relation, chosen in (
        (_FEW, None),
        (_relation_of(sum(map(len, some))), None),
        (_TEXTS, masked),
    ):
        for span in run.relations():
            _encode(relation, chosen, texts, run, span.first)


def _encode(relation: Relation, chosen: Selection | None, texts: Any, run: Any, place: int) -> None:
    batch = on("compiled", "BatchCodec")(relation, IDS, chosen)
    records = on("compiled", "Records")(1)
    while place >= 0:
        start = len(records)
        odd = batch.add_rows(texts, run, place, records)
        for record in records[start:]:
            values, has_value = _row_of(texts[run.row(place).message])
            _compare(relation, record, (_masked(values, chosen), has_value))
            place = run.row(place).next
        if odd is None:
            return
        assert odd == place
        place = run.row(odd).next


def _row_of(payload: bytes) -> tuple[Any, bool]:
    match decode(payload):
        case InsertMessage(new=new) | UpdateMessage(new=new):
            return new, True
        case DeleteMessage(old=OldTuple(values=old)):
            return old, False
        case other:
            raise AssertionError(other)


def _masked(values: Any, chosen: Selection | None) -> Any:
    if chosen is None:
        return values
    hidden = {
        Mask.NONE: lambda value: value,
        Mask.CONSTANT: lambda _: chosen.constant,
        Mask.HASH: lambda value: hmac.digest(chosen.hash_key, value, "sha256").hex().encode(),
    }
    pairs = zip(values, chosen.masks, strict=True)
    return tuple(None if value is None else hidden[mask](value) for value, mask in pairs)


def _compare(relation: Relation, record: Any, row: tuple[Any, bool]) -> None:
    """See that a record that C has encoded is that of the law."""
    law, (values, has_value) = make_codec(relation), row
    assert record.key == law.encode_key(key_of(relation.key_indexes, values))
    assert record.value == (law.encode_value(values) if has_value else None)


def lines(some: Input) -> None:
    """Encode lines of a snapshot: the first text is the key's, the second says which kind."""
    number = some[0] if some else b"1"
    kind = some[1][0] if len(some) > 1 and some[1] else 0
    relation = _relation_of(kind)
    batch = on("compiled", "BatchCodec")(relation, IDS)
    for text in some[2:]:
        line = (number + b"\t" + text).replace(b"\n", b"")
        texts, records = (on("compiled", "Texts")([line]), on("compiled", "Records")(1))
        odd = batch.add_lines(texts, 0, lsn=1, sequence=2, ts_us=3, to=records)
        if odd is None:
            (record,) = records
            _compare(relation, record, (parse_row(line), True))
        else:
            assert (odd, len(records)) == (0, 0)


def fold(some: Input) -> None:
    """Fold records whose keys, values and position headers are the texts, three by three."""
    texts = [None if text == b"-" else text for text in some]
    records = [
        FoldRecord(texts[place], texts[place + 1], texts[place + 2], place)
        for place in range(0, len(texts) - 2, 3)
    ]
    for rule in ({"keeps_faults": True}, {"keeps_faults": False}, {"by_offset": True}):
        for most_bytes in (0, 1 << 20):
            found = [_folded(way, records, most_bytes, **rule) for way in WAYS]
            assert found[0] == found[1]


def _fold(way: str, *, most_bytes: int, keeps_faults: bool = True, by_offset: bool = False) -> Any:
    return on(way, "Fold")(
        prefix=_PREFIX,
        since=b"\0" * 19 + b"\1",
        before=b"\xf0" * 20,
        keeps_faults=keeps_faults,
        most_bytes=most_bytes,
        partition=0,
        homes=1,
        by_offset=by_offset,
    )


def _folded(way: str, records: list[FoldRecord], most_bytes: int, **rule: bool) -> Any:
    made = _fold(way, most_bytes=most_bytes, **rule)
    with closing(made) as last, tempfile.TemporaryFile() as file:
        try:
            for record in records:
                last.add([record])
                if last.is_full:
                    last.spill(file.fileno())
            if not most_bytes:
                last.spill(file.fileno())
        except StrangePlaceError as error:
            return error.offset, error.what
        return last.keys_held, _rows(last), last.records, last.tombstones


def _rows(last: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for part in last.drain(2, 100):
        faults = part.faults or [None] * len(part.keys)
        columns = [each.to_pylist() for each in part[:4]]
        rows += zip(*columns, map(str, faults), strict=True)
    return sorted(rows, key=lambda row: row[2])


class Broker:
    """A broker in this process, which librdkafka has for tests, with a reader of each way."""

    def __init__(self) -> None:
        quiet: dict[str, Any] = {"log_level": 0}
        self._producer = Producer({**quiet, "test.mock.num.brokers": 1, "linger.ms": 0})
        (found,) = self._producer.list_topics(timeout=_WAIT_S).brokers.values()
        config = {
            **quiet,
            "bootstrap.servers": f"{found.host}:{found.port}",
            "group.id": "fuzz",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
            "fetch.error.backoff.ms": 5,
        }
        self.readers = {way: on(way, "RangeReader")(config) for way in WAYS}
        self.columns = {way: _columns(way) for way in WAYS}
        self.intakes = {
            way: on(way, "Intake")({**config, "enable.partition.eof": True}) for way in WAYS
        }
        self.batches = {
            way: on(way, "BatchReader")({**config, "enable.partition.eof": True}) for way in WAYS
        }

    def send(self, key: bytes | None, value: bytes | None, headers: list[Any]) -> int:
        """Write a record; return its offset."""
        sent: list[Message] = []
        self._producer.produce(
            TOPIC, value, key, 0, headers=headers, on_delivery=lambda _, told: sent.append(told)
        )
        self._producer.flush(_WAIT_S)
        offset = sent[0].offset()
        assert offset is not None
        return offset

    def close(self) -> None:
        readers = (*self.readers.values(), *self.intakes.values(), *self.batches.values())
        for reader in readers:
            reader.close()


TOPIC = "records"
broker = cache(Broker)


def headers(some: Input) -> None:
    """Read records: the first texts are key and value, then names and contents of headers."""
    key, value, *texts = [None if text == b"-" else text for text in (*some, b"", b"")]
    names = [(text or b"").decode("utf-8", "replace").replace("\0", "") for text in texts[::2]]
    pairs = list(zip(names, texts[1::2], strict=False))
    start = broker().send(key, value, pairs)
    end = broker().send(key, value, pairs[::-1]) + 1
    found = []
    for way, reader in broker().readers.items():
        reader.assign(TOPIC, 0, start, timeout_s=_WAIT_S)
        with closing(_fold(way, keeps_faults=True, most_bytes=1 << 20)) as last:
            news = reader.poll(last, end, timeout_ms=_WAIT_S * 1000)
            found.append((news, last.keys_held, _rows(last), last.records))
    assert found[0] == found[1]
    assert found[0][0] == News(2, is_over=True)
    taken = []
    for way, intake_ in broker().intakes.items():
        columns = broker().columns[way]
        intake_.assign(TOPIC, {0: (start, end)}, columns, timeout_s=_WAIT_S)
        told = intake_.poll(timeout_ms=_WAIT_S * 1000, most_bytes=1 << 20)
        intake_.rest()
        taken.append((told.added, told.open, columns.take(0).to_pylist()))
    assert taken[0] == taken[1]
    assert taken[0][:2] == (2, 0)
    batched = []
    for way, batch_reader in broker().batches.items():
        batch_reader.assign([Slice(TOPIC, 0, start, end)])
        into = on(way, "Batch")([TOPIC])
        limits = BatchLimits(10, 1 << 20, with_headers=True)
        told = batch_reader.poll(into, limits, timeout_ms=_WAIT_S * 1000)
        batched.append((told, batch_reader.slices, batch_reader.is_done, list(into.all())))
    assert batched[0] == batched[1]
    assert batched[0][:3] == (BatchNews(2, 0), [Slice(TOPIC, 0, end, end)], True)


def keys(some: Input) -> None:
    """Find the partitions of keys, and leave out by them."""
    for text in some:
        assert lib.partition_of(text, len(text), 3) == partition_of(text, 3)
    found = []
    for way in WAYS:
        records = on(way, "Records")(1)
        for number, text in enumerate(some):
            value = None if number % 3 == 0 else text
            records.add(Record(text, value, 5, number, 6, b"cudr"[number % 4 :][:1]))
        written = on(way, "WrittenPlaces")([(5, 3), (0, 0), (5, 9)])
        left = records.leave_out_written(len(some) // 3, written)
        places = [records.is_left_out(place) for place in range(len(records))]
        found.append((left, places, list(records), records.take_counts()))
    assert found[0] == found[1]


def rows(some: Input) -> None:
    """Decode rows: the first text says which kinds of columns, the others are bodies."""
    from tests.property.test_verify_columns import KINDS as OF_COLUMNS
    from tests.property.test_verify_columns import Both, batch_of, schema_of

    names = sorted(OF_COLUMNS)
    both = Both(schema_of([names[byte % len(names)] for byte in {*(some or (b"",))[0][:3]}]))
    for body in some[1:]:
        batch = batch_of([b"\0\0\0\0\0" + body], 1)
        if both.reader.read(batch) is not None:
            assert both.by_column(batch) == both.by_rule(batch)


_FIELDS = [
    (AvroField(AvroKind.BOOLEAN, ("null", "value")), CopyCell(CellForm.BOOL)),
    (AvroField(AvroKind.INT), CopyCell(CellForm.DATE)),
    (AvroField(AvroKind.LONG), CopyCell(CellForm.MILLIS)),
    (AvroField(AvroKind.LONG, ("value", "null")), CopyCell(CellForm.INT2)),
    (AvroField(AvroKind.FLOAT), CopyCell(CellForm.FLOAT4)),
    (AvroField(AvroKind.DOUBLE), CopyCell(CellForm.FLOAT8)),
    (AvroField(AvroKind.DECIMAL, ("null", "value", "text")), CopyCell(CellForm.NUMERIC, scale=5)),
    (AvroField(AvroKind.STRING), CopyCell(CellForm.UUID)),
    (AvroField(AvroKind.STRING), CopyCell(CellForm.JSONB)),
    (AvroField(AvroKind.BYTES), CopyCell(CellForm.TEXT)),
    (
        AvroField(AvroKind.ARRAY, element=AvroKind.STRING),
        CopyCell(CellForm.ARRAY, element=CellForm.TEXT, oid=25),
    ),
    (
        AvroField(AvroKind.ARRAY, element=AvroKind.LONG),
        CopyCell(CellForm.ARRAY, element=CellForm.MICROS, oid=1184),
    ),
]


def copy_rows(some: Input) -> None:
    """Copy rows: the first text says which fields, the others are bodies; what comes has tuples."""
    chosen = [_FIELDS[byte % len(_FIELDS)] for byte in (*(some or (b"",))[0][:4], 1)]
    fields = tuple(each._replace(cell=place) for place, (each, _) in enumerate(chosen))
    rows_of = AvroRows(_PREFIX, fields)
    copier = RowCopier(rows_of, None, [cell for _, cell in chosen])
    for body in some[1:]:
        raw = copier.copied(batch_of([_PREFIX + body] * 2), [])
        if raw is not None:
            tuples = tuples_of(raw)
            assert len(tuples) == 2
            assert tuples[0] == tuples[1]
            assert len(tuples[0]) == len(chosen)


def json_lines(some: Input) -> None:
    """Make lines of objects of JSON, each alone and all of a batch, for two sets of members."""
    values = list(some)
    for all_known in (True, False):
        made = [encoder(all_known=all_known, with_c=with_c) for with_c in (True, False)]
        assert lines_of(made[0], values) == lines_of(made[1], values)
    records = batch_of(values)
    writer, at = encoder(keys=("id",))._lines, 0
    while at < len(values):
        done, content = writer.lines(records, array("q", range(len(values))), at)
        assert content.count(b"\n") == done
        at += done + 1


def csv_lines(some: Input) -> None:
    """Make lines of CSV, and of whole texts, with the text before each as its key."""
    values = list(some)
    keys = [None, *values[:-1]]
    for made in (
        [csv_encoder(with_c=with_c) for with_c in (True, False)],
        [csv_encoder(fields=("a", "at"), columns="at,name=value.a,amount=value.a", delimiter=b";",
                     with_c=with_c) for with_c in (True, False)],
        [text_encoder("amount=key,name=value", with_c=with_c) for with_c in (True, False)],
    ):  # fmt: skip
        assert lines_of(made[0], values, keys) == lines_of(made[1], values, keys)
    records, writer, at = batch_of(values, keys), csv_encoder(keys=("id",))._lines, 0
    while at < len(values):
        done, content = writer.lines(records, array("q", range(len(values))), at)
        assert content.count(b"\n") == done
        at += done + 1


def batch(some: Input) -> None:
    """Take records whose values, keys and headers are the texts, and sort them."""
    texts = [None if text == b"-" else text for text in some]
    found = []
    for way in WAYS:
        made = on(way, "Batch")([BATCHED])
        for place in range(len(texts) - 1):
            name = (texts[place + 1] or b"").replace(b"\0", b"").decode("latin-1")
            headers = [(name, texts[place]), ("", None)][: place % 3]
            made.add(record_of(place, texts[place], texts[place + 1], headers))
        records = made.all()
        groups = [records[1:].groups(by_value=bool(n & 1), by_key=n > 1) for n in range(4)]
        found.append((list(records), groups, made.size_bytes))
    assert found[0] == found[1]


def _columns(way: str) -> Any:
    return on(way, "RecordColumns")(prefix=b"\0\0\0\0\7", buckets=1)


def intake(some: Input) -> None:
    """Take records whose keys, values and headers are the texts; a name has no zero byte."""
    texts = [None if text == b"-" else text for text in some]
    found = []
    for way in WAYS:
        made = _columns(way)
        for place in range(0, len(texts) - 2, 3):
            name = (texts[place + 2] or b"").replace(b"\0", b"").decode("latin-1")
            headers = [(name, texts[place]), ("position", texts[place + 2]), (name, None)]
            made.add(place, -place, texts[place], texts[place + 1], headers[place % 2 :])
        table = made.take(0)
        table.validate(full=True)
        found.append((table.to_pylist(), made.held_bytes))
    assert found[0] == found[1]


TARGETS: dict[str, Callable[[Input], None]] = {
    "batch": batch,
    "copy_lines": copy_lines,
    "copy_rows": copy_rows,
    "csv_lines": csv_lines,
    "fold": fold,
    "frames": frames,
    "headers": headers,
    "intake": intake,
    "json_lines": json_lines,
    "keys": keys,
    "lines": lines,
    "rows": rows,
    "stream": stream,
}
