"""What the measurement of rebuilds counts, keeps and draws; nothing is measured here."""

from __future__ import annotations

import json

import pytest

from benchmarks import order_log
from benchmarks.chart import kept
from benchmarks.order_log import ORDERS, Size, lines_of, parts_of
from changelog.contract.base.headers import Op
from changelog.contract.rows.codec import SchemaIds
from changelog.contract.rows.schema import value_schema
from changelog.native import Records
from tests.support.builders import read_avro


@pytest.mark.parametrize(("records", "live"), [(5_000, 1_000), (200, 10), (10_000, 9_000)])
def test_a_log_has_the_records_and_live_keys_that_were_asked_for(records, live):
    size = Size(records, live)
    seen: set[bytes] = set()
    deleted: set[bytes] = set()
    count = 0
    for part in parts_of(size):
        for lines in lines_of(part):
            count += len(lines)
            keys = {line.partition(b"\t")[0] for line in lines}
            (deleted if part.op is Op.DELETE else seen).update(keys)

    assert count == records
    assert deleted <= seen
    assert len(seen - deleted) == live


def encoded(part, lines):
    records = Records(epoch=1)
    order_log.Encoder(SchemaIds(1, 2)).add(part.op, lines, 1000, records)
    return list(records)


@pytest.mark.usefixtures("native_way")
def test_a_row_of_the_log_is_a_row_of_orders():
    part = parts_of(Size(5_000, 1_000))[0]
    records = encoded(part, next(lines_of(part)))

    row = read_avro(value_schema(ORDERS), records[120].value)
    assert row["id"] == 121
    assert json.loads(row["attrs"])["sku"] == "SKU-003751"
    assert row["note"] is None
    assert (records[120].lsn, records[120].sequence, records[120].op) == (1100, 20, b"r")


@pytest.mark.usefixtures("native_way")
def test_a_deleted_row_is_a_tombstone():
    part = parts_of(Size(5_000, 1_000))[2]
    records = encoded(part, next(lines_of(part)))
    assert {(record.op, record.value) for record in records} == {(b"d", None)}


def test_sizes_measured_before_stay_in_the_file(tmp_path):
    path = tmp_path / "replay.json"
    kept(path, {"peak_mb": 1, "sizes": {"25": {"rebuild_s": 50.0, "limit_s": 40.0}}})
    kept(path, {"peak_mb": 2, "sizes": {"5": {"rebuild_s": 9.0, "limit_s": 8.0}}})
    told = kept(path, {"sizes": {"25": {"refresh": {"rows_marked_refresh_s": 2.0}}}})

    assert json.loads(path.read_text("utf-8")) == told
    assert told["peak_mb"] == 2
    assert list(told["sizes"]) == ["5", "25"]
    refresh = {"rows_marked_refresh_s": 2.0}
    assert told["sizes"]["25"] == {"rebuild_s": 50.0, "limit_s": 40.0, "refresh": refresh}
    chart = path.with_suffix(".svg").read_text("utf-8")
    assert "rebuild, published" in chart
    assert "by deletion vectors" in chart
    assert "written whole" not in chart
