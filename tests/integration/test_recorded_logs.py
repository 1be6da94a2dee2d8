"""Topics that a real Debezium wrote, rebuilt, verified, and compared with PostgreSQL's rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.declared import (
    PLACEHOLDER,
    DeclaredLog,
    Order,
    Unavailable,
    ValueShape,
    declared_columns,
)
from changelog.contract.rows.relation import TableName
from replay.declared import left_out
from tests.support.declared_state import DeclaredState
from tests.support.matrix import first
from tests.support.postgres_values import of_log, of_postgres
from tests.support.recorded import RecordedLog, recording

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.slow]

COMPACT = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "min.compaction.lag.ms": "3600000",
    "delete.retention.ms": "3600000",
}
TYPES = {
    "id": "int", "i2": "int", "i8": "bigint", "n": "string", "d": "decimal(12,4)", "f4": "float",
    "f8": "double", "b": "boolean", "t": "string", "vc": "string", "c": "string", "by": "binary",
    "day": "date", "ts": "bigint", "ts3": "bigint", "tz": "timestamp", "tm": "bigint",
    "u": "string", "j": "string", "jb": "string", "e": "string", "ints": "string",
    "texts": "string", "big_text": "string", "big_bytes": "binary", "big_jsonb": "string",
    "big_texts": "string", "big_ints": "string", "big_longs": "string", "big_uuids": "string",
    "big_number": "string",
}  # fmt: skip
SHAPES = {
    "avro": ValueShape.DEBEZIUM_AVRO,
    "avro-flat": ValueShape.FLAT_AVRO,
    "json": ValueShape.DEBEZIUM_JSON,
    "json-schema": ValueShape.DEBEZIUM_JSON,
}
PLACEHOLDERS = {"json": "<nicht verfügbar>"}
BINARY = {"d": "string"}
"""Under `decimal.handling.mode=precise` JSON has the digits in base64."""
LESS = {
    "avro": {"big_number"},
    "json-schema": {"d", "big_number"},
    "json-flat-schema": {"n", "big_number"},
}
"""What Debezium does not write as it is: null for a decimal it did not get, doubles, base64."""
MOVED = {104, 108, 207}
"""The rows whose key was changed: their creates have nothing of what is big."""


@pytest.fixture
def read(spark, tmp_path):
    return DeclaredState(spark, tmp_path)


@pytest.fixture
def log(kafka, registry, prefix):
    def made(form, **more):
        put = RecordedLog(kafka, registry, f"{prefix}.typed", recording(form), COMPACT)
        put.put(**more)
        return put

    return made


def declared(log, form, **more) -> DeclaredLog:
    shape = SHAPES.get(form, ValueShape.FLAT_JSON)
    columns = {} if shape.is_avro else {**TYPES, **BINARY} if form == "json-schema" else TYPES
    return DeclaredLog(
        table=TableName("public", "typed"),
        topic=log.topic,
        shape=shape,
        key=("id",),
        columns=declared_columns(columns, "logs"),
        delete="__deleted" if "rewrite" in form else "",
        placeholder=PLACEHOLDERS.get(form, PLACEHOLDER),
        **more,
    )


def state(read, form, less=()):
    """Return the rows of what was read, each value in the form that PostgreSQL's texts take too."""
    texts = [
        F.col(name).cast("string") if kind in {"date", "timestamp", "timestamp_ntz"} else name
        for name, kind in read.frame.dtypes
    ]
    return {
        row["id"]: {name: of_log(name, row[name]) for name in columns(form, less)}
        for row in read.frame.select(*texts).collect()
    }


def wanted(log, form, less=()):
    """Return the rows that PostgreSQL had."""
    return {
        int(row["id"]): {name: of_postgres(name, row[name]) for name in columns(form, less)}
        for row in log.found.rows
    }


def columns(form, less=()):
    return TYPES.keys() - LESS.get(form, set()) - set(less)


def without(rows, keys):
    return {key: row for key, row in rows.items() if key not in keys}


@pytest.mark.parametrize(
    ("form", "order"),
    first(
        1,
        [
            (form, order)
            for form in ("json", "avro", "json-schema")
            for order in (Order.LSN, Order.OFFSET)
        ],
    ),
)
def test_every_type_of_an_envelope_is_what_postgresql_has(log, read, form, order):
    read(made := log(form), declared(made, form, order=order))
    assert state(read, form) == wanted(made, form)
    assert read.report.mismatches == 0


@pytest.mark.matrix
@pytest.mark.parametrize(
    "form",
    first(
        1,
        [
            "json-flat",
            "json-flat-schema",
            "json-flat-rewrite",
            "json-flat-rewrite-tombstone",
            "json-flat-delete-to-tombstone",
            "avro-flat",
        ],
    ),
)
def test_flattened_rows_without_those_that_changed_their_key(log, read, form):
    of = declared(made := log(form), form)
    with pytest.raises(CorruptRecordError, match="was left out by the source"):
        read(made, of)
    read(made, of, quarantine=True)
    assert state(read, form) == without(wanted(made, form), MOVED)
    assert read.report.mismatches == 0
    assert len(read.quarantined) == read.report.certificate["records_left_out"] == len(MOVED)


@pytest.mark.matrix
@pytest.mark.parametrize("choice", [Unavailable.NULL, Unavailable.KEEP])
def test_what_no_record_has_becomes_null_or_stays_as_the_user_chose(log, read, choice):
    of = declared(made := log("json-flat"), "json-flat", on_unavailable=choice)
    less = {"big_number"}
    rows = wanted(made, "json-flat", less)
    of = replace(of, columns=tuple(each for each in of.columns if each.column not in less))
    read(made, of)
    found = state(read, "json-flat", less)
    assert without(found, MOVED) == without(rows, MOVED)
    assert read.report.mismatches == 0
    stand_in = PLACEHOLDER if choice is Unavailable.KEEP else None
    for key in MOVED:
        assert found[key]["big_text"] == found[key]["big_jsonb"] == stand_in
        assert found[key]["big_bytes"] == (stand_in and stand_in.encode())
        assert found[key]["t"] == rows[key]["t"]


@pytest.mark.matrix
def test_twin_a_fold_that_takes_the_placeholder_for_the_value_is_found(log, read, monkeypatch):
    of = declared(made := log("json"), "json")
    monkeypatch.setattr(left_out, "_KINDS", set())
    read(made, of)
    texts = {row["id"]: row["big_text"] for row in read.frame.select("id", "big_text").collect()}
    assert texts[1] == of.placeholder
    assert read.report.mismatches > 0


@pytest.mark.matrix
def test_compaction_that_took_the_older_record_is_told_and_makes_a_bad_one(log, read):
    found = recording("json").records
    last = {record.key: place for place, record in enumerate(found)}
    made = log("json", wanted=lambda place: last[found[place].key] == place)
    of = declared(made, "json")
    with pytest.raises(CorruptRecordError, match="no older record has it"):
        read(made, of)
    read(made, of, quarantine=True)
    rows = wanted(made, "json")
    assert state(read, "json") == {key: rows[key] for key in (20, 21, 22, 1000)}
    assert read.report.mismatches == 0
    assert "compaction" in read.verdict
