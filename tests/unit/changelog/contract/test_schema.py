"""Types and schemas: single facts."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from changelog.contract.base.errors import CorruptRecordError, EncodeError
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import field_names, key_schema, read_schema, value_schema
from changelog.contract.rows.types import Kind, TypType, array_type, column_type
from tests.support.builders import INTEGER, INTEGERS, TEXT, decimal_type, make_relation, round_trip


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


def test_a_schema_has_the_labels_of_an_enum_in_their_order() -> None:
    mood = column_type(
        "mood", "mood", form=TypType.ENUM, builtin=False, labels=["sad", "\u00e4", "ok"]
    )
    schema = value_schema(
        make_relation({"id": INTEGER, "m": mood, "l": array_type(mood, "mood[]")})
    )
    assert _field(schema, "m")["pg_labels"] == ["sad", "\u00e4", "ok"]
    assert "pg_labels" not in _field(schema, "id")
    one, listed = (column.type for column in read_schema(schema).columns[1:])
    assert listed.element is not None
    assert one.labels == listed.element.labels == ("sad", "\u00e4", "ok")


def test_an_unknown_type_is_text_and_says_so() -> None:
    unknown = column_type("mystery", "mystery", builtin=False)
    assert unknown.kind is Kind.STRING
    assert not unknown.mapped
    assert not column_type("from_a_later_version", "from_a_later_version").mapped
    assert not array_type(unknown, "mystery[]").mapped


def test_a_user_s_type_may_have_the_name_of_a_builtin_one() -> None:
    impostor = column_type("date", "shop.date", builtin=False)
    assert impostor.kind is Kind.STRING
    assert not impostor.mapped
    assert column_type("numeric", "numeric(5,2)", builtin=False).kind is Kind.STRING


@pytest.mark.parametrize(
    "form", [TypType.ENUM, TypType.COMPOSITE, TypType.RANGE, TypType.MULTIRANGE]
)
def test_text_is_the_proper_form_of_a_user_s_enum_composite_or_range(form: TypType) -> None:
    mapped = column_type("date", "shop.date", form=form, builtin=False)
    assert (mapped.kind, mapped.mapped) == (Kind.STRING, True)


@pytest.mark.parametrize("name", ["hstore", "citext", "geometry", "vector"])
def test_text_is_the_proper_form_of_well_known_extension_types(name: str) -> None:
    mapped = column_type(name, name, builtin=False)
    assert (mapped.kind, mapped.mapped) == (Kind.STRING, True)


def test_the_elements_of_an_array_are_parted_by_their_own_delimiter() -> None:
    boxes = array_type(column_type("box", "box"), "box[]", ";")
    assert boxes.mapped
    assert round_trip(boxes, b"{(1,1),(0,0);NULL;(3,3),(2,2)}") == [
        "(1,1),(0,0)",
        None,
        "(3,3),(2,2)",
    ]
    relation = make_relation({"id": INTEGER, "it": boxes})
    assert read_schema(value_schema(relation)).columns[1].type == boxes


def test_a_timestamp_past_64_bits_is_refused_and_an_array_of_it_keeps_its_text() -> None:
    moment = column_type("timestamp", "timestamp without time zone")
    last = b"294247-01-10 04:00:54.775806"
    assert round_trip(moment, last, physical=True) == 2**63 - 2
    for late in (b"294247-01-10 04:00:54.775807", b"294276-12-31 23:59:59.999999"):
        with pytest.raises(EncodeError, match=r'column "it" .*does not fit 64 bits'):
            round_trip(moment, late)
        listed = b'{"' + late + b'"}'
        assert round_trip(array_type(moment, "timestamp[]"), listed) == listed.decode()


def test_a_schema_names_the_generated_columns_that_the_log_lacks() -> None:
    relation = make_relation()
    assert "generated" not in json.loads(value_schema(relation))
    computed = dataclasses.replace(relation, generated=("total",))
    assert read_schema(value_schema(computed)).generated == ("total",)
    assert key_schema(computed) == key_schema(relation)


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
