"""Types and schemas: single facts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changelog.contract.errors import CorruptRecordError
from changelog.contract.relation import TableName
from changelog.contract.schema import field_names, key_schema, read_schema, value_schema
from changelog.contract.types import Kind, array_type, column_type
from tests.support.builders import INTEGER, INTEGERS, TEXT, decimal_type, make_relation


def _field(schema: str, name: str) -> dict[str, Any]:
    return next(field for field in json.loads(schema)["fields"] if field["name"] == name)


def test_only_the_key_is_not_nullable() -> None:
    schema = value_schema(make_relation())
    assert _field(schema, "id")["type"] == "int"
    assert _field(schema, "name") == {
        "name": "name",
        "type": ["null", "string"],
        "default": None,
        "column": "name",
        "pg_type": "text",
    }


def test_the_escape_is_the_last_branch() -> None:
    relation = make_relation({"id": decimal_type(5, 2), "tags": INTEGERS})
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    items = {"type": "array", "items": ["null", "int"]}
    assert _field(value_schema(relation), "tags")["type"] == ["null", items, "string"]
    assert _field(value_schema(relation), "id")["type"] == [decimal, "string"]
    assert _field(key_schema(relation), "id")["type"] == [decimal, "string"]


def test_a_schema_keeps_the_names_that_avro_cannot_hold() -> None:
    relation = make_relation(
        {"1st": INTEGER, "a b": TEXT, "a_b": TEXT}, key=("1st",), name=TableName("Ü", "a b")
    )
    schema = json.loads(value_schema(relation))
    assert (schema["namespace"], schema["name"]) == ("changelog._", "a_b")
    assert [field["name"] for field in schema["fields"]] == ["_1st", "a_b", "a_b_2"]
    read = read_schema(value_schema(relation))
    assert read.table == ("Ü", "a b")
    assert [column.column for column in read.columns] == ["1st", "a b", "a_b"]


def test_field_names_step_over_names_already_taken() -> None:
    assert field_names(["a b", "a_b", "a_b_2", ""]) == ["a_b", "a_b_2", "a_b_2_2", "_"]


@pytest.mark.parametrize(
    ("formatted", "kind"),
    [
        ("numeric", Kind.STRING),
        ("numeric(38,38)", Kind.DECIMAL),
        ("numeric(39,0)", Kind.STRING),
        ("numeric(5,-2)", Kind.STRING),
        ("numeric(2,5)", Kind.STRING),
        ("numeric(10,0)", Kind.DECIMAL),
    ],
)
def test_a_numeric_is_decimal_only_where_every_reader_can_hold_it(
    formatted: str, kind: Kind
) -> None:
    assert column_type("numeric", formatted).kind is kind


def test_an_unknown_type_is_text_and_says_so() -> None:
    assert column_type("inet", "inet").kind is Kind.STRING
    assert not column_type("inet", "inet").mapped
    assert column_type("mood", "mood", is_enum=True).mapped


def test_an_array_of_an_unknown_type_stays_whole() -> None:
    boxes = array_type(column_type("box", "box"), "box[]")
    assert boxes.kind is Kind.STRING
    assert not boxes.mapped


def test_the_elements_of_a_numeric_array_are_text() -> None:
    numbers = array_type(decimal_type(5, 2), "numeric(5,2)[]")
    assert numbers.element is not None
    assert numbers.element.kind is Kind.STRING
    assert numbers.has_escape


_HEAD = '{"relation": ["public", "t"], "key": [], "fields": '


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '"string"',
        '{"type": "record", "name": "other", "fields": []}',
        '{"relation": ["public", "t"], "key": [], "fields": [{"name": "a", "type": "int"}]}',
        _HEAD + '[{"name": "a", "type": "int-128", "column": "a", "pg_type": "x"}]}',
        _HEAD + '[{"name": "a", "type": ["null"], "column": "a", "pg_type": "x"}]}',
    ],
)
def test_a_schema_of_another_program_is_refused(text: str) -> None:
    with pytest.raises(CorruptRecordError, match="not one that capture writes"):
        read_schema(text)
