"""A proof whose topic is read by tasks: the same as by one process, and what it does not believe.

The tasks run in threads here, after a way through pickle; on a cluster in `test_cluster.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from changelog.contract.base.errors import CorruptRecordError, LogError, SinkError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Growth
from changelog.contract.log.partition import partition_of
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import SchemaPin, key_schema
from changelog.contract.rows.types import column_type
from changelog.native import RecordColumns
from tests.support.builders import INTEGERS, TEXT, decimal_type, make_relation
from tests.support.handmade_log import HandmadeLog
from tests.support.matrix import first
from views.base.address import Address
from views.verify.compare.evidence import Evidence
from views.verify.compare.report import VerifyReport
from views.verify.log.spread import Spread
from views.verify.processes.pool import in_threads
from views.verify.records import topic as reading
from views.verify.view import VerifyRequest, verify_view

TABLE = TableName("public", "things")
THINGS = make_relation(
    {
        "id": TEXT,
        "name": TEXT,
        "amount": decimal_type(12, 2),
        "score": column_type("float8", "double precision"),
        "seen": column_type("timestamptz", "timestamp with time zone"),
        "counts": INTEGERS,
    },
    name=TABLE,
)
SCHEMA = (
    ("id", "string"),
    ("name", "string"),
    ("amount", "decimal(12,2)"),
    ("score", "double"),
    ("seen", "timestamp"),
    ("counts", "array<int>"),
)
PARTITIONS, KEYS = 5, 400
SCORES = ("NaN", "-0", "1.5", "Infinity", None)
SEEN = ("infinity", "-infinity", "2013-01-01 05:06:07.000008+00", None)
MICROS = (2**63 - 1, -(2**63), 1_357_016_767_000_008, None)


def row_of(number: int, name: str) -> tuple[str | None, ...]:
    counts = ("{1,NULL}", "{}", None)[number % 3]
    return f"k{number}", name, f"{number}.25", SCORES[number % 5], SEEN[number % 4], counts


@pytest.fixture
def log(kafka, registry, prefix) -> HandmadeLog:
    """Rows that were updated, some of them deleted, and one that was sent again."""
    made = HandmadeLog(kafka, registry, [THINGS], prefix=prefix, partitions=PARTITIONS)
    first = made.put(THINGS, row_of(0, "first"))
    for number in range(KEYS):
        made.put(THINGS, row_of(number, "old"))
        made.put(THINGS, row_of(number, f"new {number}"))
    for number in range(0, KEYS, 10):
        made.delete(THINGS, (f"k{number}",))
    made.put(THINGS, row_of(0, "first"), lsn=first)
    return made


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """What a view of all columns should hold."""
    path = tmp_path / "served"
    write_rows(path, {})
    return path


def write_rows(path: Path, changed: dict[int, str]) -> None:
    alive = [n for n in range(KEYS) if n % 10]
    rows = [row_of(n, changed.get(n, f"new {n}")) for n in alive]
    from decimal import Decimal

    table = pa.table(
        {
            "id": [row[0] for row in rows],
            "name": [row[1] for row in rows],
            "amount": pa.array([Decimal(row[2] or "0") for row in rows], pa.decimal128(12, 2)),
            "score": pa.array([None if r[3] is None else float(r[3]) for r in rows], pa.float64()),
            "seen": pa.array([MICROS[n % 4] for n in alive], pa.int64()).view(
                pa.timestamp("us", "UTC")
            ),
            "counts": pa.array([([1, None], [], None)[n % 3] for n in alive], pa.list_(pa.int32())),
        }
    )
    without = {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(str(path), table, mode="overwrite", configuration=without)


Change = Callable[[list[str]], list[str]]


@dataclass
class Launching:
    """Runs tasks in threads, each after a way through pickle; changes what comes back."""

    change: Change = lambda said: said
    given: list[Any] = field(default_factory=list)

    def __call__(self, work, given, /) -> Iterator[str]:
        self.given += given
        raw = pickle.dumps((work, given))

        def run(number):
            do, all_given = pickle.loads(raw)  # noqa: S301 - of this very test
            return do(all_given[number])

        return iter(self.change([*in_threads(run, range(len(given)))]))


@dataclass
class Proof:
    """A proof by tasks, or by this process alone where `launcher` is None."""

    log: HandmadeLog
    served: Path
    folder: Path
    launcher: Any = field(default_factory=Launching)
    width: int = 3
    least: int = 0
    changes: dict[str, Any] = field(default_factory=dict)
    quarantines: bool = False
    left_out: int = 0

    @property
    def place(self) -> Path:
        return self.folder / "shared"

    def report(self, *, sql: bool = True) -> VerifyReport:
        log, frontier = self.log, replace(self.log.frontier(), **self.changes)
        topic = log.topics[TABLE]
        pin = SchemaPin(log.register(f"{topic}-key", key_schema(THINGS)), log.schema_id(THINGS))
        spread = Spread(
            launcher=self.launcher,
            width=self.width,
            place=str(self.place),
            kafka=log.kafka,
            registry=log.registry,
            least_offsets=self.least,
        )
        address = Address("delta", {"path": str(self.served)})
        request = VerifyRequest(
            kafka=log.kafka,
            registry=log.registry,
            frontier=frontier,
            view="things_view",
            tables=(TABLE,),
            sql="-- key: id\nSELECT id, name, amount, score, seen, counts FROM things"
            if sql
            else None,
            key=("id",),
            schema=SCHEMA,
            address=address,
            states={} if sql else {TABLE: address},
        )
        with Evidence(
            log.kafka,
            log.registry,
            frontier,
            pins={topic: pin},
            quarantines=self.quarantines,
            spread=None if self.launcher is None else spread,
        ) as evidence:
            report = verify_view(request, evidence)
            self.left_out = evidence.left_out(TABLE)
        return report

    def files(self) -> list[Path]:
        return [*self.place.rglob("*.parquet")]


@pytest.fixture
def proof(log, served, tmp_path) -> Proof:
    return Proof(log, served, tmp_path)


def certified(report: VerifyReport) -> dict[str, Any]:
    certificate = dict(report.certificate)
    for timed in ("seconds", "stages"):
        certificate.pop(timed, None)
    return certificate


def test_tasks_prove_what_one_process_proves(proof):
    found = proof.report()
    alone = replace(proof, launcher=None).report()

    assert found.verified is True, found.render()
    assert certified(found) == certified(alone)
    assert found.certificate["ranges"]
    assert sum(found.certificate["records_read"].values()) == 2 + 2 * KEYS + KEYS // 10
    assert len(proof.files()) == len(proof.launcher.given) == 3
    assert sorted(p for each in proof.launcher.given for p in each.share) == [*range(PARTITIONS)]


@pytest.mark.parametrize("sql", [True, False])
def test_a_row_that_was_altered_is_found_with_its_place(proof, sql):
    write_rows(proof.served, {7: "altered"})
    found = proof.report(sql=sql)
    alone = replace(proof, launcher=None).report(sql=sql)

    assert proof.files()
    assert (found.verified, found.mismatches) == (False, 1)
    assert found.differences == alone.differences
    assert found.differences[0].key == {"id": "k7"}


def test_a_view_in_python_is_proved_from_what_tasks_have_read(proof):
    assert (proof.report(sql=False).mismatches, len(proof.files())) == (0, 3)


def test_a_record_that_a_task_skips_is_missed(proof, monkeypatch):
    """The twin of the first: the reader of the tasks lets the records of one key go by."""

    class Skipping(RecordColumns):
        def take(self, bucket: int) -> pa.Table:
            found = super().take(bucket)
            keeps = [not key.endswith(b"k7") for key in found["key"].to_pylist()]
            return found.filter(pa.array(keeps, pa.bool_()))

    monkeypatch.setattr(reading, "RecordColumns", Skipping)
    found = proof.report()
    assert (found.verified, found.mismatches) == (False, 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda said: said[1:], "its receipt is lost"),
        (lambda said: [*said, said[0]], "its receipt came twice"),
        (lambda said: [said[0], said[0], *said[2:]], "its receipt came twice"),
        (lambda said: ["", *said[1:]], "a task gave no receipt"),
        (lambda said: [said[0].replace('"run": "', '"run": "x'), *said[1:]], "of another"),
    ],
)
def test_receipts_that_are_not_one_of_each_part_end_the_verification(proof, change, says):
    proof.launcher = Launching(change)
    with pytest.raises(LogError, match=says):
        proof.report()


def test_offsets_that_a_task_did_not_read_end_the_verification(proof, monkeypatch):
    sound = reading.read_share

    def short(kafka, topic, share, *more):
        part, (start, end) = next(iter(share.items()))
        return sound(kafka, topic, {**share, part: (start, end - 1)}, *more)

    monkeypatch.setattr("views.verify.log.part.read_share", short)
    with pytest.raises(LogError, match="its receipt tells of other offsets"):
        proof.report()


def test_a_task_that_runs_twice_counts_once(proof):
    class Twice(Launching):
        def __call__(self, work, given, /):
            [*super().__call__(work, given)]
            return super().__call__(work, given)

    proof.launcher = Twice()
    assert proof.report().verified is True
    assert len(proof.files()) == 6


@pytest.mark.parametrize("how", first(1, ["changed", "gone", "another"]))
def test_a_file_that_is_not_its_receipts_ends_the_verification(proof, how):
    def planted(said):
        first, second, *_ = proof.files()
        if how == "changed":
            raw = bytearray(first.read_bytes())
            raw[len(raw) // 2] ^= 1
            first.write_bytes(raw)
        elif how == "gone":
            first.unlink()
        else:
            first.write_bytes(second.read_bytes())
        return said

    proof.launcher = Launching(planted)
    wanted = SinkError if how == "gone" else LogError
    with pytest.raises(wanted, match="cannot be read" if how == "gone" else "is not the one"):
        proof.report()


def test_a_corrupt_record_is_named_as_by_one_process(proof):
    log = proof.log
    log.raw(THINGS, ("k7",), b"\x00" + log.schema_id(THINGS).to_bytes(4) + b"\xff\xff")
    said = []
    for each in (proof, replace(proof, launcher=None)):
        with pytest.raises(CorruptRecordError) as raised:
            each.report()
        said.append(str(raised.value))
    assert said[0] == said[1]


def test_records_that_cannot_be_read_are_left_out_and_counted(proof):
    log = proof.log
    log.raw(THINGS, ("k7",), b"\x00" + log.schema_id(THINGS).to_bytes(4) + b"\xff\xff")
    proof.quarantines = True
    alone = replace(proof, launcher=None)
    assert proof.report().mismatches == alone.report().mismatches == 1
    assert proof.left_out == alone.left_out == 1


@pytest.mark.parametrize("why", ["grown", "small"])
def test_what_tasks_should_not_read_is_read_here(proof, why):
    if why == "grown":
        proof.changes = {"grown": {proof.log.topics[TABLE]: Growth(1, Lsn(1))}}
    proof.least = 10_000 if why == "small" else 0
    assert proof.report().verified is True
    assert proof.launcher.given == []


def put_astray(log: HandmadeLog) -> None:
    """Delete a row by a tombstone in a partition that its key does not belong to."""
    topic = log.topics[TABLE]
    key = log._codecs[TABLE].encode_key((b"k7",))
    other = (partition_of(key, PARTITIONS) + 1) % PARTITIONS
    log.lsn += 10
    headers = encode_headers(Position(1, Lsn(log.lsn), 0), Op.DELETE, 0)
    log._producer.produce(topic, None, key, headers=headers, partition=other)
    log._ends[topic][other] += 1


def test_a_key_that_lies_in_two_partitions_is_folded_here(proof, caplog):
    put_astray(proof.log)
    found = proof.report()
    assert found.verified is False
    assert [(each.key, each.kind) for each in found.differences] == [({"id": "k7"}, "extra")]
    assert "is read once more, here" in caplog.text


def test_twin_a_key_in_two_partitions_that_nobody_looks_for_is_missed(proof, monkeypatch):
    proof.width = PARTITIONS  # a task that reads both partitions would fold the tombstone
    put_astray(proof.log)
    monkeypatch.setattr(reading, "first_astray", lambda *_: None)
    assert proof.report().verified is True, "the deleted row is there again"
