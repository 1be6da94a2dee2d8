"""Rows and values that a follower reads from records, and the records that it leaves to Spark."""

import pytest

from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.schema import key_schema, value_schema
from replay.decode.schemas import TopicSchemas
from tests.support.builders import INTEGER, TEXT, make_relation
from views.rebuild.local.join_values import JoinValues
from views.rebuild.local.rows import reader_of, table_of
from views.rebuild.local.table import RowRecord
from views.rebuild.plan.dialect import UnknownValueError

RELATION = make_relation({"Id": INTEGER, "Name": TEXT}, key=("Id",))
SCHEMAS = TopicSchemas("things", 7, {8: value_schema(RELATION)}, 8, key=key_schema(RELATION))
VALUE = RowCodec(RELATION, key_schema_id=7, value_schema_id=8).encode_value((b"1", b"one"))


def record(value: bytes) -> RowRecord:
    return RowRecord(b"", value, 0, 0, ())


def test_columns_are_asked_for_and_named_in_lower_case():
    reader = reader_of(SCHEMAS, ["name", "id"])
    assert table_of(reader, [record(VALUE)[1:4]]).to_pylist() == [{"name": "one", "id": 1}]
    assert table_of(reader, []).column_names == ["name", "id"]
    assert JoinValues(SCHEMAS, ["Name"]).of(VALUE) == ("one",)


@pytest.mark.parametrize("value", [VALUE + b"!", VALUE[:-1], b"\0\0\0\0\x09" + VALUE[5:], b""])
def test_a_record_that_is_not_as_its_schema_says_is_left_to_spark(value):
    with pytest.raises(UnknownValueError, match="a record cannot be read here"):
        table_of(reader_of(SCHEMAS, ["id"]), [record(VALUE)[1:4], record(value)[1:4]])
    with pytest.raises(UnknownValueError, match="a record cannot be read here"):
        JoinValues(SCHEMAS, ["Id"]).of(value)
