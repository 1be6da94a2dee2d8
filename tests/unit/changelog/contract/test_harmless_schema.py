"""Schemas under which a few bytes could end their reader are refused before any is read."""

from __future__ import annotations

import json

import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.event_record import flat_schema, nested_schema
from changelog.contract.rows.harmless_schema import check_tame
from changelog.contract.rows.schema import key_schema, value_schema
from tests.support.builders import INTEGER, INTEGERS, TEXT, decimal_type, make_relation

RELATION = make_relation({"id": INTEGER, "name": TEXT, "ns": INTEGERS, "price": decimal_type(9, 2)})


def record(*types: object, name: str = "t", **more: object) -> dict[str, object]:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


@pytest.mark.parametrize("make", [key_schema, value_schema, nested_schema, flat_schema])
def test_what_capture_writes_is_tame(make):
    check_tame(make(RELATION), "it")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(["null", "t"]), "contains itself"),
        (record(["null", "a.b.t"], namespace="a.b"), "contains itself"),
        (record({"type": "array", "items": record("t", name="u")}), "contains itself"),
        (record({"type": "array", "items": "null"}), "no size"),
        (record({"type": "array", "items": record(name="empty")}), "no size"),
        (record(record("null", name="e"), {"type": "array", "items": "e"}), "no size"),
        (record({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}), "no size"),
        ([{"type": "record"}], "not an Avro schema"),
        (7, "not an Avro schema"),
    ],
)
def test_what_could_do_harm_is_refused(schema, why):
    with pytest.raises(CorruptRecordError, match=why):
        check_tame(json.dumps(schema), "schema 7")


def test_deep_nesting_is_refused():
    deep: object = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(CorruptRecordError, match="nests deeper"):
        check_tame(json.dumps(record(deep)), "schema 7")
