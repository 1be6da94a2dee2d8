"""Envelopes: the events of changes, and their form as readers of Debezium's events know it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from changelog.contract.base.errors import CorruptRecordError, EncodeError
from changelog.contract.base.headers import Op
from changelog.contract.forms.event import (
    LABELS,
    Event,
    EventOrigin,
    FlatDocuments,
    LabelledDocuments,
    NestedDocuments,
    Stamp,
    events_of,
)
from changelog.contract.forms.event_record import (
    FlatRecords,
    LabelledRecords,
    NestedRecords,
    flat_schema,
    labelled_schema,
    nested_schema,
    read_value_schema,
)
from changelog.contract.rows.change import Delete, Insert, Tombstone, Update
from changelog.contract.rows.relation import UNCHANGED, Column, Relation, ReplicaIdentity, TableName
from changelog.contract.rows.schema import read_schema, value_schema
from changelog.contract.rows.types import ColumnType, Kind

INT, TEXT = ColumnType("integer", Kind.INT), ColumnType("text", Kind.STRING)
CUSTOMERS = Relation(
    1,
    TableName("public", "customers"),
    (
        Column("id", INT),
        Column("first_name", TEXT),
        Column("last_name", TEXT),
        Column("email", TEXT),
    ),
    ("id",),
)
FULL = replace(CUSTOMERS, identity=ReplicaIdentity.FULL)
UNKEYED = replace(FULL, key=())
ORIGIN = EventOrigin("2.0", "PostgreSQL_server", "postgres")
ANNE = (b"1", b"Anne", b"Kretchmar", b"annek@noanswer.org")
MARIE = (b"1", b"Anne Marie", b"Kretchmar", None)
MOVED = (b"2", *ANNE[1:])
STAMP = Stamp(lsn=24023128, ts_us=1559033904863123, xid=555, seen_us=1559033904863841)
KEY, NEW_KEY = (b"1",), (b"2",)

# The payload of a create event in "Data change events" of Debezium's connector for PostgreSQL,
# with `snapshot` as the connector writes it: one word of an enumeration.
CREATED = {
    "before": None,
    "after": {
        "id": 1,
        "first_name": "Anne",
        "last_name": "Kretchmar",
        "email": "annek@noanswer.org",
    },
    "source": {
        "version": "2.0",
        "connector": "postgresql",
        "name": "PostgreSQL_server",
        "ts_ms": 1559033904863,
        "ts_us": 1559033904863123,
        "ts_ns": 1559033904863123000,
        "snapshot": "false",
        "db": "postgres",
        "sequence": '[null,"24023128"]',
        "schema": "public",
        "table": "customers",
        "txId": 555,
        "lsn": 24023128,
        "xmin": None,
    },
    "transaction": None,
    "op": "c",
    "ts_ms": 1559033904863,
    "ts_us": 1559033904863841,
    "ts_ns": 1559033904863841000,
}


def nested(relation: Relation, event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the event as the json module and as fastavro read it."""
    document = json.loads(NestedDocuments(relation, ORIGIN).encode(event, STAMP))
    raw = NestedRecords(relation, ORIGIN, 7).encode(event, STAMP)
    return document, decoded(raw, nested_schema(relation))


def flat(relation: Relation, event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    document = json.loads(FlatDocuments(relation).encode(event, STAMP))
    # A schema says the table of a record; a document says it itself.
    assert (document.pop("schema"), document.pop("table")) == relation.name
    assert document.pop("ingestion") == STAMP.seen_us * 1000
    assert document.pop("type") in {"read", "insert", "update", "delete"}
    raw = FlatRecords(relation, 7).encode(event, STAMP)
    return document, decoded(raw, flat_schema(relation))


def decoded(raw: bytes, schema: str) -> dict[str, Any]:
    assert raw[:5] == b"\0\0\0\0\7"
    source = io.BytesIO(raw[5:])
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)), None)
    assert source.read() == b""
    assert isinstance(found, dict)
    return found


def test_a_create_event_is_the_documented_one_in_both_outputs() -> None:
    event = Event(KEY, None, ANNE, Op.CREATE)
    document, record = nested(CUSTOMERS, event)
    assert document == record == CREATED


def test_an_update_has_the_whole_old_row_only_under_full_identity() -> None:
    (event,) = events_of(Update(CUSTOMERS, KEY, KEY, MARIE))
    assert isinstance(event, Event)
    for found in nested(CUSTOMERS, event):
        assert (found["op"], found["before"]) == ("u", None)
        assert found["after"] == {**CREATED["after"], "first_name": "Anne Marie", "email": None}  # type: ignore[dict-item]
    (event,) = events_of(Update(FULL, KEY, KEY, MARIE, ANNE))
    assert isinstance(event, Event)
    for found in nested(FULL, event):
        assert found["before"] == CREATED["after"]


def test_a_delete_has_the_key_alone_and_a_tombstone_behind_it() -> None:
    event, tombstone = events_of(Delete(CUSTOMERS, KEY))
    assert isinstance(event, Event)
    assert tombstone == Tombstone(KEY, Op.DELETE)
    document, record = nested(CUSTOMERS, event)
    assert (document["op"], document["after"]) == ("d", None)
    assert document["before"] == {"id": 1}
    # A record has every field: those that are not known are null, and the schema says so.
    assert record["before"] == {"id": 1, "first_name": None, "last_name": None, "email": None}
    assert json.loads(nested_schema(CUSTOMERS))["identity"] == "key"
    assert json.loads(nested_schema(FULL))["identity"] == "full"
    for found in nested(FULL, Event(KEY, ANNE, None, Op.DELETE)):
        assert found["before"] == CREATED["after"]


def test_a_key_change_is_a_delete_a_tombstone_and_a_create() -> None:
    assert events_of(Update(FULL, KEY, NEW_KEY, MOVED, ANNE)) == (
        Event(KEY, ANNE, None, Op.DELETE),
        Tombstone(KEY, Op.DELETE),
        Event(NEW_KEY, None, MOVED, Op.CREATE),
    )
    assert events_of(Insert(FULL, KEY, ANNE)) == (Event(KEY, None, ANNE, Op.CREATE),)


def test_without_a_key_there_is_one_event_and_no_tombstone() -> None:
    assert events_of(Update(UNKEYED, (), (), MARIE, ANNE)) == (Event((), ANNE, MARIE, Op.UPDATE),)
    assert events_of(Delete(UNKEYED, (), ANNE)) == (Event((), ANNE, None, Op.DELETE),)
    for found in nested(UNKEYED, Event((), None, None, Op.TRUNCATE)):
        assert (found["op"], found["before"], found["after"]) == ("t", None, None)


def test_the_flat_envelope_has_each_column_twice() -> None:
    document, record = flat(FULL, Event(KEY, ANNE, MARIE, Op.UPDATE))
    record["ts"] = document["ts"] = 0
    assert document == record
    assert (record["op"], record["lsn"]) == ("u", 24023128)
    assert (record["before_first_name"], record["after_first_name"]) == ("Anne", "Anne Marie")
    assert (record["before_email"], record["after_email"]) == ("annek@noanswer.org", None)
    document, record = flat(CUSTOMERS, Event(KEY, None, None, Op.DELETE))
    assert document == {"op": "d", "ts": STAMP.ts_us, "lsn": STAMP.lsn, "before_id": 1}
    assert (record["before_id"], record["before_email"], record["after_id"]) == (1, None, None)


def test_columns_whose_names_clash_stay_apart() -> None:
    columns = tuple(Column(name, INT) for name in ("a-b", "a_b", "before_x", "op"))
    relation = Relation(1, TableName("s", "t"), columns, ("op",))
    row = (b"1", b"2", b"3", b"4")
    document, record = flat(relation, Event((b"4",), None, row, Op.CREATE))
    assert [document[f"after_{column.name}"] for column in columns] == [1, 2, 3, 4]
    names = ["after_a_b", "after_a_b_2", "after_before_x", "after_op"]
    assert [record[name] for name in names] == [1, 2, 3, 4]
    for found in nested(relation, Event((b"4",), None, row, Op.CREATE)):
        assert list(found["after"].values()) == [1, 2, 3, 4]


@pytest.mark.parametrize("relation", [CUSTOMERS, FULL, UNKEYED])
def test_each_schema_tells_the_row_that_it_is_about(relation: Relation) -> None:
    row = read_schema(value_schema(relation))
    assert read_value_schema(value_schema(relation)) == row
    assert read_value_schema(nested_schema(relation)) == row
    found = read_value_schema(flat_schema(relation))
    assert (found.table, found.key) == (row.table, row.key)
    assert [(c.column, c.type) for c in found.columns] == [(c.column, c.type) for c in row.columns]
    for broken in ('{"envelope": "nested"}', "[]", '{"envelope": "flat", "fields": [1]}'):
        with pytest.raises(CorruptRecordError):
            read_value_schema(broken)


def test_readers_of_envelopes_find_the_names_that_they_look_for() -> None:
    schema = json.loads(nested_schema(CUSTOMERS))
    assert f"{schema['namespace']}.{schema['name']}" == "changelog.public.customers.Envelope"
    assert [field["name"] for field in schema["fields"]][:5] == [
        "before",
        "after",
        "source",
        "transaction",
        "op",
    ]
    assert schema["fields"][0]["type"][1]["name"] == "Value"
    assert schema["fields"][2]["type"]["name"] == "Source"


@pytest.mark.parametrize("envelope", [nested, flat])
def test_a_value_that_was_not_fetched_is_never_a_null(envelope: Any) -> None:
    row = (b"1", UNCHANGED, None, None)
    with pytest.raises(EncodeError, match=r'column "first_name".*TOAST'):
        envelope(CUSTOMERS, Event(KEY, None, row, Op.UPDATE))


@pytest.mark.parametrize(
    ("event", "row", "op", "is_gone"),
    [
        (Event(KEY, None, ANNE, Op.READ), ANNE, "r", False),
        (Event(KEY, ANNE, MARIE, Op.UPDATE), MARIE, "u", False),
        (Event(KEY, ANNE, None, Op.DELETE), ANNE, "d", True),
        (Event(KEY, None, None, Op.DELETE), (b"1", None, None, None), "d", True),
    ],
)
def test_labels_stand_beside_the_row(event, row, op, is_gone):
    wanted: dict[str, Any] = {
        column.name: None if value is None else value.decode()
        for column, value in zip(CUSTOMERS.columns, row, strict=True)
    }
    wanted["id"] = 1
    where = ("public", "customers", STAMP.lsn)
    labels = (op, *where, STAMP.ts_us, STAMP.seen_us, is_gone)
    wanted |= dict(zip(LABELS, labels, strict=True))
    assert json.loads(LabelledDocuments(CUSTOMERS).encode(event, STAMP)) == wanted
    raw = LabelledRecords(CUSTOMERS, 5).encode(event, STAMP)
    schema = json.loads(labelled_schema(CUSTOMERS))
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(raw[5:]), fastavro.parse_schema(schema), None
    )
    moments = {"__ts": STAMP.ts_us, "__ingested": STAMP.seen_us}
    for name, us in moments.items():
        assert found[name].timestamp() * 1_000_000 == pytest.approx(us, abs=1)
    assert {**found, **moments} == wanted
    assert read_value_schema(labelled_schema(CUSTOMERS)) == read_schema(value_schema(CUSTOMERS))
