"""Records of every form are read as rows, and what is wrong with one is said: replay.local.rows."""

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from changelog.contract.base.errors import ConfigurationError, CorruptRecordError, LogError
from changelog.contract.base.headers import Op
from changelog.contract.forms.event import NOWHERE, Event, Stamp
from changelog.contract.forms.event_record import (
    FlatRecords,
    NestedRecords,
    flat_schema,
    nested_schema,
)
from changelog.contract.log.form import Envelope, Form, Output
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import Column
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type
from replay.decode.schemas import TopicSchemas
from replay.local.records import WrittenRecord
from replay.local.rows import RowReader, can_read
from tests.support.builders import INTEGER, TEXT, decimal_type, make_relation

KEY_ID, VALUE_ID = 7, 8
RELATION = make_relation({"id": INTEGER, "name": TEXT, "price": decimal_type(6, 2)})
ROW = (b"1", b"one", b"1.50")
READ = {"id": 1, "name": "one"}
STAMP = Stamp(lsn=100, ts_us=5, xid=3, seen_us=6)


def schemas(text, envelope=Envelope.ROW, older=None):
    writers = {**(older or {}), VALUE_ID: text}
    form = Form(Output.AVRO, envelope)
    return TopicSchemas("things", KEY_ID, writers, VALUE_ID, form, key_schema(RELATION))


PLAIN = schemas(value_schema(RELATION))


def encoded(row=ROW, relation=RELATION, schema_id=VALUE_ID):
    codec = RowCodec(relation, key_schema_id=KEY_ID, value_schema_id=schema_id)
    return codec.encode_value(row)


def read(of, *values, columns=("id", "name")):
    records = [WrittenRecord(value, 3, 10 + number) for number, value in enumerate(values)]
    return RowReader(of, columns).table(records).to_pylist()


def test_plain_rows_are_read():
    assert read(PLAIN, encoded(), encoded((b"2", None, None))) == [READ, {"id": 2, "name": None}]
    assert RowReader(PLAIN).schema.names == ["id", "name", "price"]


@pytest.mark.parametrize("envelope", [Envelope.NESTED, Envelope.FLAT])
def test_events_give_the_row_after_and_none_of_one_that_is_gone(envelope):
    forms: dict[Envelope, tuple[str, Any]] = {
        Envelope.NESTED: (nested_schema(RELATION), NestedRecords(RELATION, NOWHERE, VALUE_ID)),
        Envelope.FLAT: (flat_schema(RELATION), FlatRecords(RELATION, VALUE_ID)),
    }
    text, records = forms[envelope]
    events = [
        records.encode(Event((b"1",), (b"1", b"old", None), ROW, Op.UPDATE), STAMP),
        records.encode(Event((b"2",), None, None, Op.DELETE), STAMP),
    ]
    assert read(schemas(text, envelope), *events) == [READ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "the value's first bytes  are no frame"),
        (
            b"\0\0\0\0\x63rest",
            "the value's first bytes 0000000063 are no frame with a schema id of",
        ),
        (encoded()[:-1], "the value's body does not follow its schema"),
        (encoded() + b"!", "the value's body is longer than its schema says"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(value, why):
    with pytest.raises(CorruptRecordError) as refused:
        read(PLAIN, encoded(), value)
    assert str(refused.value).startswith(f'topic "things", partition 3, offset 11: {why}')


def test_a_flat_event_without_its_key_is_refused():
    records = FlatRecords(RELATION, VALUE_ID)
    event = records.encode(Event((b"1",), None, (None, b"x", None), Op.CREATE), STAMP)
    with pytest.raises(CorruptRecordError, match="does not follow its schema"):
        read(schemas(flat_schema(RELATION), Envelope.FLAT), event)


def test_a_version_that_does_not_read_as_the_newest_is_refused_by_its_record_alone():
    older = make_relation({"id": INTEGER, "name": column_type("int8", "bigint")})
    both = schemas(value_schema(RELATION), older={5: value_schema(older)})
    assert read(both, encoded()) == [READ]
    with pytest.raises(CorruptRecordError, match=r"under schema id 5, cannot be read as 8: column"):
        read(both, encoded((b"1", b"7"), older, 5))


def test_a_value_without_a_place_is_refused_where_its_column_is_read():
    odd = encoded((b"1", b"one", b"NaN"))
    assert read(PLAIN, odd) == [READ]
    with pytest.raises(LogError) as refused:
        read(PLAIN, odd, columns=("price",))
    assert str(refused.value).startswith(
        'table "public.things", column "price" (numeric(6,2)): the value NaN of the row with key '
        '(1) has no exact form in this type; topic "things", partition 3, offset 10'
    )


MOMENTS = [
    *(
        (kind, end)
        for kind in ("date", "timestamptz", "timestamp")
        for end in ("infinity", "-infinity")
    ),
    ("date", "2024-02-29"),
    ("date", "10000-01-01"),
    ("date", "0044-03-15 BC"),
    ("timestamp", "2024-02-29 01:02:03"),
    ("timestamp", "0044-03-15 01:02:03.5 BC"),
    ("timestamptz", "2024-02-29 01:02:03.000001+00"),
]


@pytest.mark.parametrize(("kind", "text"), MOMENTS)
def test_a_date_or_a_moment_in_a_key_is_said_as_postgresql_says_it(kind, text):
    relation = make_relation({"id": column_type(kind, kind), "price": decimal_type(6, 2)})
    of = replace(schemas(value_schema(relation)), key=key_schema(relation))
    with pytest.raises(LogError, match=re.escape(f"of the row with key ({text}) has no exact")):
        read(of, encoded((text.encode(), b"NaN"), relation), columns=("price",))


def test_documents_and_unknown_columns_are_not_for_this_reader():
    assert can_read(PLAIN)
    assert not can_read(TopicSchemas("t", None, {}, 0, Form(Output.JSON)))
    with pytest.raises(ConfigurationError, match='has no column "colour"'):
        RowReader(PLAIN, ["colour"])


def test_a_column_that_came_later_has_its_default_of_any_type():
    later = {
        "price": (decimal_type(6, 2), '"\\u0000\\u0096"', Decimal("1.50")),
        "raw": (column_type("bytea", "bytea"), '"\\u00ff"', b"\xff"),
        "day": (column_type("date", "date"), "1", date(1970, 1, 2)),
        "name": (TEXT, None, None),
    }
    more = [Column(name, kind, default=text) for name, (kind, text, _) in later.items()]
    first = make_relation({"id": INTEGER})
    newest = replace(first, columns=(*first.columns, *more))
    both = schemas(value_schema(newest), older={5: value_schema(first)})
    assert read(both, encoded((b"1",), first, 5), columns=("id", *later)) == [
        {"id": 1, **{name: value for name, (_, _, value) in later.items()}}
    ]
