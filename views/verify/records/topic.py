"""Read all records of a topic before a frontier's ends, by column, into buckets of keys.

Threads read shares of the offsets, each with a consumer of its own: `changelog.native` makes no
object of a record, and lets other threads run. The contract of records is checked on the way.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from numpy.lib.stride_tricks import sliding_window_view

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, LogError, UnavailableLogError
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from changelog.kafka.clients import lent
from changelog.native import Intake, RecordColumns
from changelog.native.columns import NO_EPOCH, IntakeNews, ReadOutcome, RecordFault
from views.base.pace import Pace, Tell, quiet
from views.verify.processes.pool import helpers
from views.verify.records.archived import LogArchive, as_columns
from views.verify.records.read import (
    REQUEST_SECONDS,
    STALL_SECONDS,
    beginnings,
    consumer_settings,
    ended_early,
    place,
    refused,
    stalled,
    unmoved,
)
from views.verify.records.receipts import Share, require_whole, shared_out
from views.verify.records.survivors import KEPT_BYTES, Buckets
from views.verify.values.faults import Quarantine

_BUCKET_OFFSETS = 100_000
_MOST_BUCKETS = 4096
_HELD_BYTES = 64 << 20
"""Records in memory, of all threads, before they are put into their buckets."""
_POLL_MS = 500
_FRAME = struct.Struct(">BI")
_FRAME_BYTES = _FRAME.size
_ORDER = ("epoch", "commit_lsn", "sequence")
LAST = (2**31, 2**63)
"""A place behind that of every record."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """The form of a topic's keys."""

    is_json: bool
    schema_id: int | None

    @property
    def beginning(self) -> bytes:
        if self.is_json:
            return b"{"
        return b"" if self.schema_id is None else _FRAME.pack(0, self.schema_id)

    def fault_text(self, fault: RecordFault) -> str:
        """Describe a fault."""
        match fault:
            case RecordFault.NO_KEY:
                return "no key"
            case RecordFault.OTHER_KEY if self.is_json:
                return "a key that is not a JSON document"
            case RecordFault.OTHER_KEY:
                return f"a key that does not bear the pinned schema id {self.schema_id}"
            case _:
                return "no header `position` of 20 bytes"


@dataclass(slots=True)
class RecordFindings:
    """Counts and faults collected while records pass by; safe to call from several threads."""

    topic: str
    frontier: Frontier
    keys: _Keys
    quarantine: Quarantine | None
    # the number of partitions, to check that each key is in its own; None for no such check
    homes: int | None = None
    count: int = 0  # of the records
    later: tuple[int, int] = LAST  # place of the first record after the cut
    # place of the first record whose key belongs to another partition
    astray: tuple[int, int] = LAST
    # the first bytes of keys, where no schema id is pinned
    frames: set[bytes] = field(default_factory=set)
    # the position of the newest value, and its frame
    newest: tuple[tuple[int, ...], bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, table: pa.Table) -> None:
        """Check records and count them.

        Raises CorruptRecordError: one breaks the contract, and is not quarantined.
        """
        self._look_at_faults(table)
        columns = {name: table[name].to_numpy() for name in ("part", "off", *_ORDER)}
        later = self._later(columns)
        newest = _newest(table, columns)
        astray = self._astray(table)
        frames: set[bytes] = set()
        if self.quarantine is None and not self.keys.beginning:
            frames = {*pc.unique(pc.binary_slice(table["key"], 0, _FRAME_BYTES)).to_pylist()}
        with self._lock:
            self.count += table.num_rows
            self.later, self.astray = min(self.later, later), min(self.astray, astray)
            self.frames |= frames
            if newest is not None and (self.newest is None or newest[0] > self.newest[0]):
                self.newest = newest

    def _look_at_faults(self, table: pa.Table) -> None:
        faulty = np.flatnonzero(table["fault"].to_numpy())
        for row in table.take(faulty).to_pylist() if len(faulty) else ():
            why = f"the record has {self.keys.fault_text(RecordFault(row['fault']))}"
            if self.quarantine is None:
                raise CorruptRecordError(
                    f"{place(self.topic, row['part'], row['off'])}: {why}",
                    hint="another program wrote to the topic",
                )
            self.quarantine.suspect(row["part"], row["off"], why)

    def _later(self, columns: dict[str, np.ndarray]) -> tuple[int, int]:
        epochs, cut = columns["epoch"], self.frontier
        is_later = (epochs != NO_EPOCH) & (
            (epochs > cut.epoch)
            | ((epochs == cut.epoch) & (columns["commit_lsn"] >= np.uint64(int(cut.lsn))))
        )
        rows = np.flatnonzero(is_later)
        return min(((int(columns["part"][n]), int(columns["off"][n])) for n in rows), default=LAST)

    def _astray(self, table: pa.Table) -> tuple[int, int]:
        if self.homes is None:
            return LAST
        keyed = table.filter(pc.not_equal(table["fault"], RecordFault.NO_KEY))
        return first_astray(keyed, self.homes) or LAST

    def require(self) -> None:
        """Require that the whole topic keeps the contract of a frontier."""
        if self.later != LAST:
            raise LogError(
                f"{place(self.topic, *self.later)} belongs to a transaction after the frontier "
                f"{self.frontier.lsn} but lies before its end",
                hint="the log breaks its contract here: take a new snapshot of the table",
            )
        if len(self.frames) > 1:
            raise LogError(
                f'topic "{self.topic}" has keys under {len(self.frames)} schema ids, '
                "so one row may have two keys",
                hint="the key's schema id is pinned for the life of a topic: make the topic anew",
            )


def _newest(
    table: pa.Table, columns: dict[str, np.ndarray]
) -> tuple[tuple[int, ...], bytes] | None:
    """Return the position of the newest value, and its frame."""
    rows = np.flatnonzero(table["value"].is_valid().to_numpy())
    if not len(rows):
        return None
    for name in _ORDER:
        values = columns[name][rows]
        rows = rows[values == values.max()]
    row = int(rows[0])
    order = tuple(int(columns[name][row]) for name in _ORDER)
    return order, table["value"][row].as_py()[:_FRAME_BYTES]


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records of a topic."""

    count: int  # how many were read
    newest_schema_id: int | None  # of the newest value, None when there is no value
    buckets: Buckets  # the records


def read_topic(
    kafka: KafkaConnection,
    frontier: Frontier,
    topic: str,
    *,
    key_id: int | None = None,
    behind: Sequence[int] | None = None,
    quarantine: Quarantine | None = None,
    work_directory: Path | None = None,
    tell: Tell = quiet,
) -> TopicRecords:
    """Read all records of a topic before the frontier's ends.

    `key_id`: the schema id that every key bears, None where that is not known. `behind`: the first
    offset of each partition that is read, where not the partition's start; then the caller has to
    require that the topic is `unmoved`. `quarantine`: takes the
    records that have no place in the order, which then come after all others of their key; None
    makes one an error. `work_directory`: where files are made, None for the system's place.

    Raises:
        LogError: the topic is not the one of the frontier, or moved while it was read.
        CorruptRecordError: a record breaks the contract; names topic, partition and offset.
        UnavailableLogError: the brokers do not answer.
    """
    ends = frontier.ends.get(topic, ())
    findings = findings_of(frontier, topic, key_id, quarantine)
    with ExitStack() as stack:
        with unmoved(kafka, frontier, [topic] if behind is None else []) as facts:
            starts = (
                beginnings(frontier, topic, facts[topic].starts)
                if behind is None
                else tuple(behind)
            )
            offsets = sum(max(0, end - first) for first, end in zip(starts, ends, strict=True))
            buckets = buckets_of(offsets, work_directory)
            stack.callback(buckets.close)
            pace = Pace(tell, f'topic "{topic}": read', offsets, "records")
            _read_shares(kafka, topic, starts, ends, TopicRead(findings, buckets, pace.add))
        findings.require()
        stack.pop_all()
    newest = None if findings.newest is None else int.from_bytes(findings.newest[1][1:], "big")
    return TopicRecords(findings.count, newest, buckets)


def read_archived(
    archive: LogArchive,
    frontier: Frontier,
    topic: str,
    *,
    key_id: int | None = None,
    work_directory: Path | None = None,
    tell: Tell = quiet,
) -> TopicRecords:
    """Read all records of a topic before the frontier's ends from an archive of the log.

    The arguments are those of `read_topic`.

    Raises:
        LogError: the archive does not have them all, or was altered.
        CorruptRecordError: a record breaks the contract; names topic, partition and offset.
        UnavailableError: the storage does not answer.
    """
    ends = frontier.ends[topic]
    findings = findings_of(frontier, topic, key_id, None)
    starts = beginnings(frontier, topic, archive.starts(frontier, topic))
    offsets = sum(max(0, end - first) for first, end in zip(starts, ends, strict=True))
    with ExitStack() as stack:
        buckets = buckets_of(offsets, work_directory)
        stack.callback(buckets.close)
        pace = Pace(tell, f'topic "{topic}": read', offsets, "records")
        for _, table in archive.tables(frontier, topic, starts):
            records = as_columns(table, findings.keys.beginning)
            findings.look(records)
            for bucket, part in _parted(records, len(buckets)):
                buckets.put(bucket, part)
            pace.add(records.num_rows)
        findings.require()
        stack.pop_all()
    newest = None if findings.newest is None else int.from_bytes(findings.newest[1][1:], "big")
    return TopicRecords(findings.count, newest, buckets)


def _parted(records: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the records of each bucket: all records of a key are in one."""
    if not records.num_rows:
        return
    places = homes_of(records["key"].combine_chunks(), buckets)
    for bucket in np.unique(places):
        yield int(bucket), records.take(pa.array(np.flatnonzero(places == bucket)))


def findings_of(
    frontier: Frontier,
    topic: str,
    key_id: int | None,
    quarantine: Quarantine | None,
    *,
    homes: int | None = None,
) -> RecordFindings:
    """Return the findings of a topic before anything is read."""
    is_json = frontier.scope_of(topic).form.output is Output.JSON
    keys = _Keys(is_json=is_json, schema_id=key_id)
    return RecordFindings(topic, frontier, keys, quarantine, homes)


def buckets_of(offsets: int, folder: Path | None, *, most_bytes: int = KEPT_BYTES) -> Buckets:
    """Return buckets for this number of records; see `Buckets`."""
    count = min(1 + offsets // _BUCKET_OFFSETS, _MOST_BUCKETS)
    return Buckets(count, folder, most_bytes=most_bytes)


def _no_progress(_records: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class TopicRead:
    """The destination of records, a callback for their number, and a flag to stop."""

    findings: RecordFindings
    buckets: Buckets
    tell: Callable[[int], None] = _no_progress
    stopped: threading.Event = field(default_factory=threading.Event)

    def drain(self, columns: RecordColumns) -> None:
        """Check all records that were read and put them into their buckets."""
        tables = [columns.take(bucket) for bucket in range(len(self.buckets))]
        self.findings.look(pa.concat_tables(tables))
        for bucket, table in enumerate(tables):
            if table.num_rows:
                self.buckets.put(bucket, table)
                self.tell(table.num_rows)


def _read_shares(
    kafka: KafkaConnection,
    topic: str,
    starts: Sequence[int],
    ends: Sequence[int],
    reading: TopicRead,
) -> None:
    shares = shared_out(starts, ends, helpers())
    if len(shares) == 1:
        read = [read_share(kafka, topic, shares[0], reading, _HELD_BYTES)]
    elif shares:
        most = _HELD_BYTES // len(shares)
        with ThreadPoolExecutor(len(shares), "verify-read") as pool:
            jobs = [
                pool.submit(read_share, kafka, topic, share, reading, most, number=number)
                for number, share in enumerate(shares)
            ]
            try:
                read = [job.result() for job in jobs]
            finally:
                reading.stopped.set()
    else:
        read = []
    require_whole(topic, starts, ends, read)


def read_share(
    kafka: KafkaConnection,
    topic: str,
    share: Share,
    reading: TopicRead,
    most_bytes: int,
    *,
    number: int = 0,
) -> Share:
    """Read a share; returns it if it was read to its end, else an empty one.

    `number`: of the share among the ones that are read at the same time.
    """
    columns = RecordColumns(prefix=reading.findings.keys.beginning, buckets=len(reading.buckets))
    with _lent_intake(kafka, topic, share, columns, number) as intake:
        last_news, remaining = time.monotonic(), len(share)
        while remaining and not reading.stopped.is_set():
            news = intake.poll(timeout_ms=_POLL_MS, most_bytes=most_bytes)
            _require_sound(topic, share, news)
            if news.added or news.open < remaining:
                last_news = time.monotonic()
            elif time.monotonic() > last_news + STALL_SECONDS:
                raise stalled(topic)
            remaining = news.open
            if columns.held_bytes >= most_bytes:
                reading.drain(columns)
        reading.drain(columns)
    return {} if remaining else share


@contextmanager
def _lent_intake(
    kafka: KafkaConnection, topic: str, share: Share, columns: RecordColumns, number: int
) -> Iterator[Intake]:
    """Lend a consumer that reads a share into columns."""
    settings = consumer_settings(kafka)
    try:
        with lent(kafka, f"intake {number}", lambda: Intake(settings)) as intake:
            intake.assign(topic, share, columns, timeout_s=REQUEST_SECONDS)
            yield intake
            intake.rest()
    except KafkaException as error:
        raise UnavailableLogError(f'topic "{topic}" cannot be read: {error}') from error


def _require_sound(topic: str, share: Share, news: IntakeNews) -> None:
    match news.outcome:
        case ReadOutcome.SHORT:
            raise ended_early(topic, news.partition, news.offset, share[news.partition][1])
        case ReadOutcome.REFUSED:
            raise refused(topic, news.partition, news.message)
        case ReadOutcome.DISORDER:
            raise LogError(
                f"{place(topic, news.partition, news.offset)}: the record came again while the "
                "topic was read",
                hint="run the verification again; the brokers may have changed their leader",
            )
        case _:
            pass


# Kafka's murmur2 over a column of keys, by the verifier's own code.
_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_WORD = 4
_SIGN = np.uint32(0x7FFFFFFF)


def homes_of(keys: pa.BinaryArray, partitions: int) -> np.ndarray:
    """Return the partition of each key; no key may be null."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    raw = keys.buffers()[2]
    data = np.frombuffer(raw if raw is not None else b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hashes(sliding_window_view(data, length)[offsets[rows]], len(rows))
    return (hashes & _SIGN) % np.uint32(partitions)


def _hashes(keys: np.ndarray, count: int) -> np.ndarray:
    """Hash keys of one length, a row of bytes each."""
    length = keys.shape[1]
    whole = length - length % _WORD
    hashes = np.full(count, _SEED ^ np.uint32(length))
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        mixed = word * _MULTIPLIER
        mixed ^= mixed >> np.uint32(24)
        hashes = (hashes * _MULTIPLIER) ^ (mixed * _MULTIPLIER)
    if whole < length:
        for place in range(length - whole):
            hashes ^= keys[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
        hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    return hashes ^ (hashes >> np.uint32(15))


def first_astray(table: pa.Table, partitions: int) -> tuple[int, int] | None:
    """Return partition and offset of a record whose key belongs to another partition, if any.

    `table`: records with the columns `part`, `off` and `key`.
    """
    parts, offsets = table["part"].to_numpy(), table["off"].to_numpy()
    done = 0
    for chunk in table["key"].chunks:
        there = slice(done, done + len(chunk))
        rows = np.flatnonzero(homes_of(chunk, partitions) != parts[there])
        if len(rows):
            return int(parts[there][rows[0]]), int(offsets[there][rows[0]])
        done += len(chunk)
    return None
