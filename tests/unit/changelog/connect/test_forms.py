"""Values for PostgreSQL: `changelog.connect.rules.records.forms`, and Avro schemas as columns."""

import json

import pytest

from changelog.connect.rules.records.avro import columns_of
from changelog.connect.rules.records.forms import document, lines, needs_lines, same
from changelog.connect.rules.records.reading import BadRecordError, WrittenNumber
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.schema import value_schema
from changelog.contract.rows.types import column_type


def line(kind, value):
    found = lines({"a": kind}, ["a"], [{"a": value}], "t")
    return None if found is None else found.decode().removesuffix("\n")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", 5, "5"),
        ("numeric", WrittenNumber("1.50"), "1.50"),
        ("boolean", True, "true"),
        ("text", None, "\\N"),
        ("text", "a\tb\\c\n", "a\\tb\\\\c\\n"),
        ("text", "\\N", "\\\\N"),
        ("text", {"x": [1]}, '{"x":[1]}'),
        ("bytea", "AP8=", "\\\\x00ff"),
        ("bytea[]", ["AP8=", None], '{"\\\\\\\\x00ff",NULL}'),
        ("jsonb", {"x": WrittenNumber("1.50")}, '{"x":1.50}'),
        ("jsonb", '{"x": 1}', '{"x": 1}'),
        ("text[]", ['a"b', "c,d", None, []], '{"a\\\\"b","c,d",NULL,{}}'),
        ("integer[]", [[1, 2], [3, 4]], '{{"1","2"},{"3","4"}}'),
        ("integer[]", "[2:3]={7,8}", "[2:3]={7,8}"),
        ("json[]", [{"x": 1}], '{"{\\\\"x\\\\":1}"}'),
    ],
)
def test_a_field_of_copy(kind, value, expected):
    assert line(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"), [("public.pair", {"a": 1}), ("box[]", ["x"]), ("public.pair[]", [{"a": 1}])]
)
def test_what_has_no_form_goes_as_json(kind, value):
    assert line(kind, value) is None
    assert json.loads(document({"a": kind}, [{"a": value}], "t")) == [{"a": value}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", 5),
        ("timestamp without time zone", WrittenNumber("1.5")),
        ("bytea", "?"),
        ("text", "\ud800"),
    ],
)
def test_what_may_mean_several_things_is_bad_either_way(kind, value):
    with pytest.raises(BadRecordError):
        line(kind, value)
    with pytest.raises(BadRecordError):
        document({"a": kind}, [{"a": value}], "t")


def test_a_null_of_json_goes_by_lines_or_not_at_all():
    rows = [{"a": "null"}]
    assert needs_lines({"a": "jsonb"}, rows)
    assert not needs_lines({"a": "text"}, rows)
    with pytest.raises(BadRecordError, match="JSON's null"):
        document({"a": "jsonb"}, rows, "t")


def test_a_field_without_a_column_is_bad():
    with pytest.raises(BadRecordError, match="no column for the field b"):
        lines({"a": "text"}, ["b"], [{"b": "x"}], "t")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("integer", 5, WrittenNumber("5")),
        ("numeric", WrittenNumber("1.50"), "1.5"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ],
)
def test_keys_that_postgresql_takes_for_equal_are_the_same(kind, one, other):
    assert same(kind, one) == same(kind, other)
    assert same("citext", one) is None


def test_columns_of_our_own_schemas_have_the_types_of_the_source():
    columns = (
        Column("id", column_type("int8", "bigint")),
        Column("odd name", column_type("numeric", "numeric(10,2)")),
    )
    relation = Relation(1, TableName("public", "t"), columns, ("id",))
    found = columns_of(json.loads(value_schema(relation)))
    assert found == {"id": "bigint", "odd name": "numeric(10,2)"}


def test_columns_of_an_envelope_are_those_of_its_row():
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "s", "type": {"type": "int", "connect.type": "int16"}},
            {
                "name": "d",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {
                "name": "w",
                "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}],
            },
            {"name": "a", "type": {"type": "array", "items": ["null", "long"]}},
            {"name": "m", "type": {"type": "map", "values": "string"}},
            {"name": "__deleted", "type": "string"},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    assert columns_of(envelope) == {
        "s": "smallint",
        "d": "numeric(9,2)",
        "w": "date",
        "a": "bigint[]",
        "m": "jsonb",
    }
