"""Rows and values that a follower reads from records, and the records that it leaves to Spark."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from changelog.avro.bodies import BodyReader
from changelog.avro.rows import DecodedBodies
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import RowCodec
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.schema import key_schema, value_schema
from changelog.contract.rows.types import column_type
from replay.decode.schemas import TopicSchemas
from tests.support.builders import INTEGER, TEXT, make_relation
from views.project.spec import TableReference
from views.rebuild.local.join_values import JoinValues
from views.rebuild.local.rows import KEY, reader_of, table_of
from views.rebuild.local.table import LocalTable, RowRecord, Touched, opened
from views.rebuild.local.visible import VisibleChanges
from views.rebuild.plan.dialect import UnknownValueError

AT = Position(1, Lsn(1), 0)
DOUBLE = column_type("float8", "double precision")
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


def test_readers_that_share_what_they_decode_decode_a_record_once(monkeypatch):
    reads, read = [], BodyReader.read

    def counted(self, value):
        reads.append(value)
        return read(self, value)

    monkeypatch.setattr(BodyReader, "read", counted)
    decoded = DecodedBodies(2 * len(VALUE))
    other = RowCodec(RELATION, key_schema_id=7, value_schema_id=8).encode_value((b"2", b"two"))
    for _ in range(2):
        assert JoinValues(SCHEMAS, ["Name"], decoded).of(VALUE) == ("one",)
        table = table_of(reader_of(SCHEMAS, ["id"], decoded), [record(VALUE)[1:4]])
        assert table.to_pylist() == [{"id": 1}]
        assert JoinValues(SCHEMAS, ["Id"], decoded).of(other) == (2,)
    assert reads == [VALUE, other]
    decoded.clear()
    assert JoinValues(SCHEMAS, ["Id"], decoded).of(VALUE) == (1,)
    assert reads == [VALUE, other, VALUE]


def test_what_has_no_room_is_decoded_each_time():
    decoded = DecodedBodies(len(VALUE) - 1)
    assert JoinValues(SCHEMAS, ["Name"], decoded).of(VALUE) == ("one",)
    assert decoded.of("things") == {}


@pytest.mark.parametrize(
    ("before", "now", "is_seen"),
    [
        ("1.5", "1.5", False),
        ("1.5", "2.5", True),
        ("0", "-0", True),
        ("NaN", "NaN", True),  # computed again for nothing, and never taken for the same
        (None, None, False),
        (None, "0", True),
    ],
)
def test_a_change_of_a_column_that_is_read_is_seen(before, now, is_seen):
    relation = make_relation({"id": INTEGER, "x": DOUBLE, "note": TEXT}, key=("id",))
    schemas = TopicSchemas("t", 7, {8: value_schema(relation)}, 8, key=key_schema(relation))
    codec = RowCodec(relation, key_schema_id=7, value_schema_id=8)
    older, newer = (
        RowRecord(
            b"1", codec.encode_value((b"1", None if x is None else x.encode(), note)), 0, at, ()
        )
        for at, (x, note) in enumerate([(before, b"a"), (now, b"b")])
    )
    table = TableName("public", "t")
    changes = VisibleChanges({TableReference(table, 0, 1, None): ["x"]}, {table: schemas})
    seen = changes.of({table: Touched((older,), (newer,))})[table]
    assert seen.is_any is is_seen


BOOLEAN, DAY = column_type("bool", "boolean"), column_type("date", "date")
AMOUNT = column_type("numeric", "numeric(9,2)")
SOLD = make_relation({"id": INTEGER, "paid": BOOLEAN, "day": DAY, "amount": AMOUNT}, key=("id",))
SOLD_SCHEMAS = TopicSchemas("sold", 7, {8: value_schema(SOLD)}, 8, key=key_schema(SOLD))


def sold(offset: int, number: int, *values: str | None) -> tuple[bytes, bytes | None, int, int]:
    codec = RowCodec(SOLD, key_schema_id=7, value_schema_id=8)
    sent = [None if value is None else value.encode() for value in (str(number), *values)]
    key = codec.encode_key((str(number).encode(),))
    return key, codec.encode_value(sent) if values else None, 0, offset


@pytest.fixture(params=["held in columns", "looked up"])
def sales(request, monkeypatch):
    if request.param == "looked up":
        monkeypatch.setattr("views.rebuild.local.table.MOST_WHOLE", -1)
    table = LocalTable(opened(":memory:"), "sales", SOLD_SCHEMAS, ["id", "paid", "day"])
    yield table
    table.close()


def ids(table: LocalTable, column: str, values: pa.Array, *, most: int = 10) -> list[int]:
    return sorted(table.having(column, values, ["id"], most=most)["id"].to_pylist())


def test_rows_are_found_as_they_are_now(sales):
    day = pa.array([date(2026, 1, 2)], pa.date32())
    sales.fill([sold(n, n, "t" if n % 2 else "f", "2026-01-02", "1") for n in range(4)], AT)
    assert ids(sales, "paid", pa.array([True])) == [1, 3]
    assert ids(sales, "day", day) == [0, 1, 2, 3]
    came = sold(12, 4, "t", "2026-01-02", "2")
    sales.advance([sold(10, 1, "f", None, "1"), sold(11, 3), came], AT)
    assert ids(sales, "paid", pa.array([True])) == [4]
    assert ids(sales, "day", day) == [0, 2, 4]
    sales.advance([sold(20, 4), sold(21, 1, "t", "2026-01-02", "1")], AT)
    assert ids(sales, "paid", pa.array([True])) == [1]
    assert ids(sales, "day", day) == [0, 1, 2]
    assert sales.having("paid", pa.array([True]), ["amount", KEY], most=1).to_pylist() == [
        {"amount": Decimal("1.00"), KEY: sold(0, 1)[0]}
    ]
    assert ids(sales, "id", pa.array([2, 2**40], pa.int64())) == [2]


def test_a_row_without_a_place_in_its_type_fails_only_where_it_takes_part(sales):
    sales.fill([sold(1, 1, "t", None, "1"), sold(2, 2, "f", None, "NaN")], AT)
    sales.want(["amount"])
    assert ids(sales, "paid", pa.array([True])) == [1]
    with pytest.raises(UnknownValueError, match="cannot be read here"):
        sales.having("paid", pa.array([False]), ["amount"], most=10)


def test_more_rows_than_are_looked_up_are_refused(monkeypatch, sales):
    sales.fill([sold(n, n, "t", None, "1") for n in range(3)], AT)
    monkeypatch.setattr("views.rebuild.local.table.MOST_WHOLE", 2)
    assert ids(sales, "paid", pa.array([True]), most=3) == [0, 1, 2]
    with pytest.raises(UnknownValueError, match="more than 2 rows of it take part"):
        ids(sales, "paid", pa.array([True]), most=2)
