"""Verification against real servers: what a sink serves, with a defect planted in each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
import redis
from deltalake import DeltaTable, write_deltalake

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import (
    ChangelogError,
    CorruptRecordError,
    LogError,
    RefutedError,
    ViewError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import column_type
from changelog.native import RecordColumns
from changelog.runtime.process.child import Child
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints
from tests.support.builders import BIGINT, INTEGER, TEXT, TEXTS, decimal_type, make_relation
from tests.support.handmade_log import HandmadeLog
from tests.support.matrix import first
from views.base.address import Address
from views.verify.compare.evidence import Evidence
from views.verify.records.receipts import shared_out
from views.verify.records.topic import read_share
from views.verify.served.served import read_served
from views.verify.values.types import parse_type
from views.verify.view import VerifyRequest, verify_view

FLIGHTS = make_relation(
    {
        "id": INTEGER,
        "carrier": TEXT,
        "delay": column_type("float8", "double precision"),
        "fare": decimal_type(10, 2),
        "day": column_type("date", "date"),
        "seen": column_type("timestamptz", "timestamp with time zone"),
        "tags": TEXTS,
    },
    name=TableName("public", "flights"),
)
AIRLINES = make_relation({"code": TEXT, "name": TEXT}, ("code",), TableName("public", "airlines"))
SQL = """-- key: id
-- sinks: delta
SELECT f.id, f.delay, f.fare, f.day, f.seen, f.tags,
       named_struct('code', f.carrier, 'name', a.name) AS airline,
       f.delay / 3 AS third
FROM flights f LEFT JOIN airlines a ON f.carrier = a.code
"""
SCHEMA = (
    ("id", "int"),
    ("delay", "double"),
    ("fare", "decimal(10,2)"),
    ("day", "date"),
    ("seen", "timestamp"),
    ("tags", "array<string>"),
    ("airline", "struct<code:string,name:string>"),
    ("third", "double"),
)
# What the view holds, in the JSON form of a row: written by hand, so that no code of ours is
# both the builder and the judge.
ROWS: dict[str, dict[str, Any]] = {
    "1": {
        "id": 1,
        "delay": 4.5,
        "fare": "10.50",
        "day": "2013-01-01",
        "seen": "2013-01-01T05:06:07.000008Z",
        "tags": ["a", None],
        "airline": {"code": "UA", "name": "United"},
        "third": 1.5,
    },
    "2": {
        "id": 2,
        "delay": "NaN",
        "fare": "-0.05",
        "day": "infinity",
        "seen": "-infinity",
        "tags": [],
        "airline": {"code": "ZZ", "name": None},
        "third": "NaN",
    },
    "4": {
        "id": 4,
        "delay": None,
        "fare": None,
        "day": "0044-03-15 BC",
        "seen": "12013-01-01T00:00:00.000000Z",
        "tags": None,
        "airline": {"code": None, "name": None},
        "third": None,
    },
}


@pytest.fixture
def log(kafka: KafkaConnection, registry: RegistryConnection, prefix: str) -> HandmadeLog:
    """Three flights and an airline that live, and a flight that was deleted."""
    made = HandmadeLog(kafka, registry, [FLIGHTS, AIRLINES], prefix=prefix)
    old = made.put(FLIGHTS, ("3", "UA", "1", "1.00", "2013-01-01", None, None))
    made.put(FLIGHTS, ("1", "UA", "0", "1.00", "2013-01-01", None, None))
    made.put(AIRLINES, ("UA", "Untied"))
    made.put(AIRLINES, ("UA", "United"))
    row = ("1", "UA", "4.5", "10.50", "2013-01-01", "2013-01-01 05:06:07.000008+00", "{a,NULL}")
    made.put(FLIGHTS, row)
    made.put(FLIGHTS, ("2", "ZZ", "NaN", "-0.05", "infinity", "-infinity", "{}"))
    made.delete(FLIGHTS, ("3",))
    # Sent again after a crash: older than the tombstone before it.
    made.put(FLIGHTS, ("3", "UA", "1", "1.00", "2013-01-01", None, None), lsn=old)
    far = "12013-01-01 00:00:00+00"
    made.put(FLIGHTS, ("4", None, None, None, "0044-03-15 BC", far, None))
    return made


def request_for(log: HandmadeLog, address: Address, **changes: Any) -> VerifyRequest:
    request = VerifyRequest(
        kafka=log.kafka,
        registry=log.registry,
        frontier=log.frontier(),
        view="flights_view",
        tables=(FLIGHTS.name, AIRLINES.name),
        sql=SQL,
        key=("id",),
        schema=SCHEMA,
        address=address,
    )
    return replace(request, **changes)


ARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("delay", pa.float64()),
        ("fare", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("airline", pa.struct([("code", pa.string()), ("name", pa.string())])),
        ("third", pa.float64()),
    ]
)
# Days and microseconds since 1970, counted by PostgreSQL itself.
_DAYS = {"2013-01-01": 15706, "infinity": 2**31 - 1, "0044-03-15 BC": -735_160}
_MICROS = {
    "2013-01-01T05:06:07.000008Z": 1_357_016_767_000_008,
    "-infinity": -(2**63),
    "12013-01-01T00:00:00.000000Z": 316_926_518_400_000_000,
}


def arrow_rows(rows: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    from decimal import Decimal

    def column(name: str) -> pa.Array:
        values = [row[name] for row in rows.values()]
        if name == "day":
            return pa.array([_DAYS[v] for v in values], pa.int32()).view(pa.date32())
        if name == "seen":
            micros = pa.array([_MICROS[v] for v in values], pa.int64())
            return micros.view(pa.timestamp("us", "UTC"))
        if name == "fare":
            return pa.array(
                [None if v is None else Decimal(v) for v in values], ARROW.field(2).type
            )
        if name in {"delay", "third"}:
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        return pa.array(values, ARROW.field(name).type)

    return pa.Table.from_arrays([column(field.name) for field in ARROW], schema=ARROW)


class DeltaSide:
    def __init__(self, path: Path) -> None:
        self.address = Address("delta", {"path": str(path)})
        self._path = path
        self._rows: dict[str, Any] = dict(ROWS)
        # deltalake's own writer cannot make statistics of an infinity.
        no_statistics = {"delta.dataSkippingNumIndexedCols": "0"}
        write_deltalake(str(path), arrow_rows(self._rows), configuration=no_statistics)

    def plant(self, id_: str, row: Mapping[str, Any] | None) -> None:
        if id_ in self._rows:
            DeltaTable(str(self._path)).delete(f"id = {id_}")
        if row is not None:
            write_deltalake(str(self._path), arrow_rows({id_: row}), mode="append")


class SearchSide:
    """An index filled over HTTP."""

    def __init__(self, url: str, index: str) -> None:
        self.address = Address("search", {"url": url, "index": index})
        self._base = f"{url}/{index}"
        body = {"mappings": {"dynamic": False}, "settings": {"number_of_replicas": 0}}
        httpx.put(self._base, json=body, timeout=60, verify=authorities()).raise_for_status()
        for id_, row in ROWS.items():
            self.plant(id_, row)

    def plant(self, id_: str, row: Mapping[str, Any] | None) -> None:
        if row is None:
            answer = httpx.delete(f"{self._base}/_doc/{id_}", timeout=60, verify=authorities())
        else:
            answer = httpx.put(
                f"{self._base}/_doc/{id_}", json=row, timeout=60, verify=authorities()
            )
        answer.raise_for_status()


class CacheSide:
    """Entries under a prefix."""

    def __init__(self, url: str, view: str) -> None:
        self.prefix = f"{view}:1:"
        self.address = Address("cache", {"url": url, "prefix": self.prefix})
        self.client = redis.Redis.from_url(url)
        for id_, row in ROWS.items():
            self.plant(id_, row)
        # Another generation and another view, which must not be read.
        self.client.set(f"{view}:11:1", "{}")
        self.client.set(f"{view}2:1:1", "{}")

    def plant(self, id_: str, row: Mapping[str, Any] | None) -> None:
        if row is None:
            self.client.delete(f"{self.prefix}{id_}")
        else:
            self.client.set(f"{self.prefix}{id_}", json.dumps(row))


class MemorySide:
    def __init__(self, path: Path) -> None:
        self.address = Address("memory", {"path": str(path)})
        self._rows: dict[str, Any] = dict(ROWS)
        self._path = path
        self._write()

    def plant(self, id_: str, row: Mapping[str, Any] | None) -> None:
        self._rows[id_] = row
        self._write()

    def _write(self) -> None:
        lines = (json.dumps({"id": i, "row": r}) for i, r in self._rows.items() if r is not None)
        self._path.write_text("\n".join(lines))


@pytest.fixture(params=first(3, ["delta", "cache", "memory", "search"]))
def side(
    request: pytest.FixtureRequest, endpoints: Endpoints, prefix: str, tmp_path: Path
) -> Iterator[Any]:
    match request.param:
        case "delta":
            yield DeltaSide(tmp_path / "served")
        case "search":
            yield SearchSide(str(endpoints.search), f"{prefix}-000001")
        case "memory":
            yield MemorySide(tmp_path / "rows.jsonl")
        case _:
            made = CacheSide(str(endpoints.cache), prefix)
            yield made
            made.client.close()


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Let two threads read whatever there is, two helpers decode it; returns their processes."""
    started: list[subprocess.Popen[bytes]] = []

    class Kept(Child):
        def __init__(self, module: str, *, name: str, hint: str) -> None:
            super().__init__(module, name=name, hint=hint)
            started.append(self._process)

    monkeypatch.setattr("views.verify.processes.pool.Child", Kept)
    for place in ("records.topic", "log.tables", "processes.pool"):
        monkeypatch.setattr(f"views.verify.{place}.helpers", lambda: 2)
    monkeypatch.setattr("views.verify.records.receipts.MANY_OFFSETS", 1)
    monkeypatch.setattr("views.verify.log.states.MANY_ROWS", 1)
    monkeypatch.setattr("views.verify.log.tables.is_by_column", lambda _: False)
    return started


def test_helpers_find_what_one_process_does(log: HandmadeLog, tmp_path: Path, helped: Any) -> None:
    side = MemorySide(tmp_path / "rows.jsonl")
    assert verify_view(request_for(log, side.address)).verified is True
    assert len(helped) == 4, "two tables, each decoded by two"
    side.plant("1", {**ROWS["1"], **WRONG})
    report = verify_view(request_for(log, side.address))
    assert (report.mismatches, report.rows_expected) == (1, 3)
    assert {each.poll() is not None for each in helped} == {True}


def without_last_offsets(starts: Any, ends: Any, threads: int) -> Any:
    """The defect: the last offset of each partition is in no share."""
    ends = [max(start, end - 1) for start, end in zip(starts, ends, strict=True)]
    return shared_out(starts, ends, threads)


def test_offsets_that_no_share_has_end_the_verification(
    log: HandmadeLog, helped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("views.verify.records.topic.shared_out", without_last_offsets)
    with pytest.raises(LogError, match="were not read"):
        verify_view(request_for(log, Address("memory", {"path": "unused"})))


@pytest.mark.parametrize("how", ["lost", "twice"])
def test_a_share_that_is_lost_or_read_twice_ends_the_verification(
    log: HandmadeLog, helped: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def some(starts: Any, ends: Any, threads: int) -> Any:
        shares = shared_out(starts, ends, threads)
        return shares[1:] if how == "lost" else [*shares, shares[0]]

    monkeypatch.setattr("views.verify.records.topic.shared_out", some)
    with pytest.raises(LogError, match="were not read" if how == "lost" else "were read twice"):
        verify_view(request_for(log, Address("memory", {"path": "unused"})))


def test_twin_a_record_that_the_reader_skips_is_missed(
    log: HandmadeLog, tmp_path: Path, helped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Skipping(RecordColumns):
        """The defect: the records of one key go away."""

        def take(self, bucket: int) -> pa.Table:
            found = super().take(bucket)
            return found.filter(
                pa.array([not key.endswith(b"\2") for key in found["key"].to_pylist()])
            )

    monkeypatch.setattr("views.verify.records.topic.RecordColumns", Skipping)
    side = MemorySide(tmp_path / "rows.jsonl")
    assert verify_view(request_for(log, side.address)).verified is False


def test_a_thread_that_fails_ends_the_verification(
    log: HandmadeLog, helped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def failing(*arguments: Any, **more: Any) -> Any:
        begun.append(arguments)
        if len(begun) == 1:
            raise MemoryError
        return read_share(*arguments, **more)

    monkeypatch.setattr("views.verify.records.topic.read_share", failing)
    with pytest.raises(MemoryError):
        verify_view(request_for(log, Address("memory", {"path": "unused"})))


def test_helpers_name_the_place_of_a_corrupt_record(log: HandmadeLog, helped: Any) -> None:
    schema = log.schema_id(FLIGHTS)
    log.raw(FLIGHTS, ("9",), b"\x00" + schema.to_bytes(4) + b"\xff\xff")
    request = request_for(log, Address("memory", {"path": "unused"}))
    with pytest.raises(CorruptRecordError, match=r"flights\", partition \d, offset \d"):
        verify_view(request)
    assert {each.poll() is not None for each in helped} == {True}


def test_helpers_quarantine_what_one_process_would(
    log: HandmadeLog, tmp_path: Path, helped: Any
) -> None:
    schema = log.schema_id(FLIGHTS)
    log.raw(FLIGHTS, ("9",), b"\x00" + schema.to_bytes(4) + b"\xff\xff")
    side = MemorySide(tmp_path / "rows.jsonl")
    frontier = log.frontier()
    with Evidence(log.kafka, log.registry, frontier, quarantines=True) as evidence:
        report = verify_view(request_for(log, side.address, frontier=frontier), evidence)
        assert (report.verified, evidence.left_out(FLIGHTS.name)) == (True, 1)
    assert helped


def test_a_helper_that_dies_ends_the_verification(
    log: HandmadeLog, tmp_path: Path, helped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Child, request: object) -> None:
        self._process.kill()
        self._process.wait()
        Child.send(self, request)

    monkeypatch.setattr("views.verify.processes.pool.Child.send", killed)
    side = MemorySide(tmp_path / "rows.jsonl")
    with pytest.raises(ChangelogError, match="a helper of the verifier died with code -9"):
        verify_view(request_for(log, side.address))
    assert {each.poll() for each in helped} == {-9}


def test_rows_as_the_log_says_are_verified(log: HandmadeLog, side: Any) -> None:
    report = verify_view(request_for(log, side.address))
    assert report.differences == ()
    assert (report.verified, report.mismatches) == (True, 0)
    assert (report.rows_expected, report.rows_served) == (3, 3)
    assert sum(part["rows"] for part in report.certificate["ranges"]) == 3
    assert json.loads(json.dumps(report.to_json()))["certificate"]["records_read"]


WRONG: dict[str, Any] = {
    "delay": 4.500000000000001,
    "fare": "10.51",
    "tags": ["a"],
    "airline": {"code": "UA", "name": "Untied"},
    "third": 1.50001,
}


def test_each_wrong_value_of_a_row_is_found(log: HandmadeLog, side: Any) -> None:
    side.plant("1", {**ROWS["1"], **WRONG})
    report = verify_view(request_for(log, side.address))
    assert (report.verified, report.mismatches) == (False, 1)
    assert [(dict(d.key), d.kind, d.column) for d in report.differences] == [
        ({"id": "1"}, "different", column) for column in WRONG
    ]
    assert all(d.expected != d.served for d in report.differences)
    with pytest.raises(RefutedError, match="id=1"):
        report.raise_on_mismatch()


def test_a_null_in_place_of_a_value_is_found(log: HandmadeLog, side: Any) -> None:
    side.plant("1", {**ROWS["1"], "fare": None})
    report = verify_view(request_for(log, side.address))
    assert [(d.column, d.expected, d.served) for d in report.differences] == [
        ("fare", "10.50", None)
    ]


def test_a_missing_row_is_found(log: HandmadeLog, side: Any) -> None:
    side.plant("2", None)
    report = verify_view(request_for(log, side.address))
    assert (report.verified, report.mismatches, report.rows_served) == (False, 1, 2)
    assert [(d.kind, dict(d.key)) for d in report.differences] == [("missing", {"id": "2"})]


def test_an_extra_row_is_found(log: HandmadeLog, side: Any) -> None:
    # The deleted flight: what an engine serves that skips nulls.
    side.plant("3", {**ROWS["1"], "id": 3})
    report = verify_view(request_for(log, side.address))
    assert (report.verified, report.mismatches, report.rows_served) == (False, 1, 4)
    assert [(d.kind, dict(d.key)) for d in report.differences] == [("extra", {"id": "3"})]


def test_a_sample_finds_a_missing_row_by_its_count(log: HandmadeLog, side: Any) -> None:
    whole = verify_view(request_for(log, side.address, mode="sample", sample_share=0.5))
    assert whole.verified is True
    assert any("sample: 50.0%" in note for note in whole.notes)
    side.plant("2", None)
    report = verify_view(request_for(log, side.address, mode="sample", sample_share=0.000001))
    assert (report.verified, report.mismatches) == (False, 1)


def test_a_row_that_is_served_twice_is_found(log: HandmadeLog, tmp_path: Path) -> None:
    side = DeltaSide(tmp_path / "served")
    write_deltalake(str(tmp_path / "served"), arrow_rows({"1": ROWS["1"]}), mode="append")
    report = verify_view(request_for(log, side.address))
    assert (report.verified, report.mismatches) == (False, 1)
    assert [d.kind for d in report.differences] == ["extra"]


COUNTING = [("id", parse_type("int")), ("text", parse_type("string"))]
MANY = 300


def test_an_index_of_several_shards_is_read_once(
    endpoints: Endpoints, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("views.verify.served.search._PAGE", 7)
    base = f"{endpoints.search}/{prefix}-000001"
    settings = {"settings": {"number_of_replicas": 0, "number_of_shards": 3}}
    httpx.put(base, json=settings, timeout=60, verify=authorities()).raise_for_status()
    lines = [
        f'{{"index":{{"_id":"{n}"}}}}\n{json.dumps({"id": n, "text": "é"})}\n' for n in range(MANY)
    ]
    httpx.post(
        f"{base}/_bulk",
        content="".join(lines).encode(),
        headers={"content-type": "application/x-ndjson"},
        timeout=60,
        verify=authorities(),
    ).raise_for_status()
    address = Address("search", {"url": str(endpoints.search), "index": f"{prefix}-000001"})
    with duckdb.connect() as database:
        assert read_served(database, "served", address, COUNTING, ["id"]) == MANY
        found = database.execute("SELECT DISTINCT id FROM served WHERE __fault IS NULL").fetchall()
    assert sorted(found) == [(n,) for n in range(MANY)]
    opened = httpx.get(
        f"{endpoints.search}/_nodes/stats/indices/search", timeout=60, verify=authorities()
    ).json()["nodes"]
    assert [node["indices"]["search"]["scroll_current"] for node in opened.values()] == [0]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        json.dumps({**ROWS["1"], "more": 1}),
        json.dumps({**ROWS["1"], "fare": "10.5"}),
        json.dumps({**ROWS["1"], "fare": 10.5}),
        json.dumps({**ROWS["1"], "id": 7}),
        json.dumps({**ROWS["1"], "day": "2013-13-01"}),
        json.dumps({**ROWS["1"], "seen": "2013-01-01T05:06:07.000008"}),
    ],
)
def test_an_entry_in_another_form_is_a_mismatch(
    log: HandmadeLog, endpoints: Endpoints, prefix: str, text: str
) -> None:
    side = CacheSide(str(endpoints.cache), prefix)
    side.client.set(f"{side.prefix}1", text)
    side.client.close()
    assert verify_view(request_for(log, side.address)).verified is False


def test_rows_before_since_are_dead(log: HandmadeLog, side: Any) -> None:
    topic = log.topics[AIRLINES.name]
    log.since[topic] = Position(1, Lsn(log.lsn), 0)
    report = verify_view(request_for(log, side.address))
    assert report.verified is False
    assert [(d.column, d.expected) for d in report.differences] == [
        ("airline", "{'code': UA, 'name': NULL}")
    ]


def test_records_behind_the_frontier_are_not_read(log: HandmadeLog, side: Any) -> None:
    request = request_for(log, side.address)
    log.put(FLIGHTS, ("1", "UA", "9", "9.99", "2013-01-01", None, None))
    log.delete(FLIGHTS, ("2",))
    log.frontier()
    assert verify_view(request).verified is True


def test_a_difference_of_a_whole_table_names_its_record(
    kafka: KafkaConnection, registry: RegistryConnection, prefix: str, tmp_path: Path
) -> None:
    things = make_relation()
    log = HandmadeLog(kafka, registry, [things], prefix=prefix, partitions=1)
    log.put(things, ("1", "one"))
    log.evolve(make_relation({"id": INTEGER, "name": TEXT, "more": BIGINT}))
    log.put(log.relations[things.name], ("2", "two", "22"))
    rows = {"id": pa.array([1, 2], pa.int32()), "name": ["one", "to"], "more": [None, 22]}
    write_deltalake(str(tmp_path), pa.table(rows))
    report = verify_view(
        request_for(
            log,
            Address("delta", {"path": str(tmp_path)}),
            tables=(things.name,),
            sql="SELECT * FROM things",
            schema=(("id", "int"), ("name", "string"), ("more", "bigint")),
        )
    )
    (found,) = report.differences
    assert (found.column, found.expected, found.served) == ("name", "two", "to")
    assert found.offset == f"{log.topics[things.name]}:0:1"


def test_sql_without_a_known_equal_is_not_verified(log: HandmadeLog, side: Any) -> None:
    report = verify_view(request_for(log, side.address, sql="SELECT first(id) FROM flights"))
    assert report.verified is None
    assert "cannot verify this SQL" in report.notes[0]
    report.raise_on_mismatch()


def test_a_key_that_is_not_unique_is_an_error(log: HandmadeLog, side: Any) -> None:
    with pytest.raises(ViewError, match="is in two rows"):
        verify_view(
            request_for(log, side.address, sql=SQL + " CROSS JOIN (SELECT 1 UNION ALL SELECT 2)")
        )


def test_a_record_of_a_schema_that_is_no_row_s_is_named(log: HandmadeLog, tmp_path: Path) -> None:
    foreign = log.register("foreign-value", '"string"')
    log.raw(FLIGHTS, ("9",), b"\x00" + foreign.to_bytes(4) + b"\x02x")
    with pytest.raises(CorruptRecordError, match=rf"flights\", .*{foreign}"):
        verify_view(request_for(log, Address("delta", {"path": str(tmp_path)})))


def test_a_value_without_a_place_in_its_type_is_an_error(log: HandmadeLog, tmp_path: Path) -> None:
    log.put(FLIGHTS, ("9", "UA", "1", "NaN", None, None, None))
    with pytest.raises(LogError, match=r"column \"fare\" .* holds NaN"):
        verify_view(request_for(log, Address("delta", {"path": str(tmp_path)})))


def test_a_topic_made_anew_is_an_error(log: HandmadeLog, side: Any) -> None:
    frontier = log.frontier()
    ids = dict.fromkeys(frontier.topic_ids, "other")
    with pytest.raises(LogError, match="made anew"):
        verify_view(request_for(log, side.address, frontier=replace(frontier, topic_ids=ids)))


def test_a_frontier_that_breaks_its_promise_is_an_error(log: HandmadeLog, side: Any) -> None:
    frontier = replace(log.frontier(), lsn=Lsn(log.lsn))
    with pytest.raises(LogError, match="after the frontier"):
        verify_view(request_for(log, side.address, frontier=frontier))


def test_a_python_view_has_its_inputs_compared(log: HandmadeLog, tmp_path: Path) -> None:
    path = str(tmp_path / "airlines")
    write_deltalake(path, pa.table({"code": ["UA"], "name": ["United"]}))
    state = Address("delta", {"path": path})
    request = request_for(
        log, state, sql=None, tables=(AIRLINES.name,), states={AIRLINES.name: state}
    )
    report = verify_view(request)
    assert (report.verified, report.mismatches, report.rows_served) == (None, 0, 1)
    write_deltalake(path, pa.table({"code": ["XX"], "name": ["Extra"]}), mode="append")
    assert verify_view(request).verified is False
