"""Messages of Protobuf: each type's exact form, and what has none; two readers, one answer."""

import base64
import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.avro.framed import FramedReader
from changelog.connect.rules.records.reading import RecordReading
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.forms.declared import DeclaredLog, ValueShape
from changelog.contract.rows.codec import frame
from changelog.contract.rows.relation import TableName
from changelog.contract.rows.types import Kind
from changelog.protobuf.compile import UnfitMessageError, compiled
from changelog.protobuf.messages import MessageTypes, RowTypes, split
from replay.declared.encoded import DeclaredRowEncoder
from replay.declared.interpret import Interpreter, columns_of
from views.verify.log.declared import DeclaredReader
from views.verify.log.registry import WriterSchemas

TEXT = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";

message Event {
  int64 id = 1;
  uint64 big = 2;
  int32 small = 3;
  uint32 wide = 4;
  sint64 zig = 5;
  fixed64 fixed = 6;
  bool yes = 7;
  float f = 8;
  double d = 9;
  string s = 10;
  bytes y = 11;
  optional string note = 12;
  google.protobuf.Timestamp at = 13;
  enum Colour { RED = 0; BLUE = 5; }
  Colour colour = 14;
  repeated int32 ns = 15;
  repeated uint64 bigs = 16;
  map<string, int64> m = 17;
  oneof choice { string left = 18; int32 right = 19; }
  message Inner { int64 v = 1; google.protobuf.Timestamp at = 2; }
  Inner inner = 20;
  repeated Inner inners = 21;
  google.protobuf.Int64Value boxed = 22;
  google.type.Date day = 23;
  repeated Colour colours = 24;
}
message Other { message Deep { int32 q = 1; } }
"""
EVENT = compiled(TEXT, "it")
ROWS, TYPES = RowTypes(EVENT), MessageTypes(EVENT)
FULL = {
    "id": str(-(2**63)),
    "big": str(2**64 - 1),
    "small": -(2**31),
    "wide": 2**32 - 1,
    "zig": "-1",
    "fixed": str(2**63),
    "yes": True,
    "f": 0.1,
    "d": 0.1,
    "s": "ä",
    "y": "AAE=",
    "note": "",
    "at": "2024-02-29T10:00:00.123456Z",
    "colour": "BLUE",
    "ns": [1, -1],
    "bigs": [str(2**64 - 1)],
    "m": {"b": "1", "a": str(2**63 - 1)},
    "right": 0,
    "inner": {"v": "5", "at": "2024-02-29T10:00:00.123456789Z"},
    "inners": [{"v": "1"}],
    "boxed": "7",
    "day": {"year": 2024},
    "colours": ["RED", "BLUE"],
}


class Schemas(WriterSchemas):
    """The schema with id 7, as the registry has it."""

    def __init__(self):
        self._known = {7: EVENT}


LOG = DeclaredLog(
    table=TableName("public", "events"), topic="t", shape=ValueShape.FLAT_PROTOBUF, key=("id",)
)


def body(document):
    return TYPES.encoded(document)[1:]


def replayed(raw, key=None):
    reader = Interpreter(LOG, columns_of(EVENT, LOG.shape), {}, {7: EVENT})
    (statement,) = reader.statements(key, raw)
    return statement


def verified(raw):
    return DeclaredReader(LOG, Schemas(), 7).row(raw)


def test_each_type_has_its_exact_form():
    row = ROWS.row(body(FULL), (0,))
    assert row == {
        "id": -(2**63),
        "big": Decimal(2**64 - 1),
        "small": -(2**31),
        "wide": 2**32 - 1,
        "zig": -1,
        "fixed": Decimal(2**63),
        "yes": True,
        "f": struct.unpack("<f", struct.pack("<f", 0.1))[0],
        "d": 0.1,
        "s": "ä",
        "y": b"\0\1",
        "note": "",
        "at": 1_709_200_800_123_456,
        "colour": "BLUE",
        "ns": [1, -1],
        "bigs": [str(2**64 - 1)],
        "m": f'{{"a":"{2**63 - 1}","b":"1"}}',
        "left": None,
        "right": 0,
        "inner": '{"at":"2024-02-29T10:00:00.123456789Z","v":"5"}',
        "inners": '[{"v":"1"}]',
        "boxed": 7,
        "day": '{"day":0,"month":0,"year":2024}',
        "colours": ["RED", "BLUE"],
    }
    kinds = {column.column: column.type for column in ROWS.columns}
    assert (kinds["big"].kind, kinds["big"].precision, kinds["big"].scale) == (Kind.DECIMAL, 20, 0)
    assert kinds["wide"].kind is Kind.LONG
    assert kinds["at"].kind is Kind.TIMESTAMPTZ
    assert kinds["bigs"].element is not None
    assert kinds["bigs"].element.kind is Kind.STRING


def test_what_is_not_there_is_null_where_presence_is_told_and_the_default_elsewhere():
    row = ROWS.row(b"", (0,))
    assert [row[name] for name in ("note", "at", "left", "right", "inner", "boxed")] == [None] * 6
    assert [row[name] for name in ("id", "s", "colour", "yes", "ns", "m", "inners")] == [
        0,
        "",
        "RED",
        False,
        [],
        "{}",
        "[]",
    ]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (body({"at": "2024-02-29T10:00:00.123456789Z"}), 'field "at": it has nanoseconds'),
        (bytes([14 << 3, 9]), 'field "colour": 9 is no value of its enum'),
        (bytes([0xC2, 0x01, 1, 9]), 'field "colours": 9 is no value'),
        (bytes([31 << 3 | 0x80, 0x01, 9]), "it has fields that shop.v1.Event does not"),
        (b"\x0a", "it is no shop.v1.Event"),
        (bytes([10 << 3 | 2, 1, 0xFF]), "it is no shop.v1.Event"),
        # A moment of the year 10000.
        (b"j\x07\x08\x80\x83\xd1\xff\xaf\x07", 'field "at": it is no moment'),
    ],
)
def test_what_has_no_exact_form_is_refused_with_its_place(raw, reason):
    with pytest.raises(CorruptRecordError, match=reason):
        ROWS.row(raw, (0,))
    assert replayed(frame(7) + b"\0" + raw).fault is not None
    with pytest.raises(Exception, match=r"."):
        verified(frame(7) + b"\0" + raw)


def test_a_message_of_the_schema_that_is_not_its_first_is_refused():
    assert split(frame(7) + b"\4\2\0x") == (7, (1, 0), b"x")
    assert split(frame(7) + b"\2\0x") == (7, (0,), b"x")
    with pytest.raises(CorruptRecordError, match=r"it is a shop\.v1\.Other\.Deep"):
        ROWS.row(b"", (1, 0))
    for path in (b"", b"\x80", b"\2", b"\1", b"\x42", b"\xff" * 6):
        with pytest.raises(CorruptRecordError):
            split(frame(7) + path)
    with pytest.raises(CorruptRecordError, match="no message at"):
        ROWS.row(b"", (2,))


def test_a_schema_that_does_not_compile_is_refused_with_the_reason():
    with pytest.raises(CorruptRecordError, match=r'5 is no schema .* "nothing" is not defined'):
        compiled('syntax = "proto3"; message A { nothing b = 1; }', "5")
    with pytest.raises(CorruptRecordError, match=r"other\.proto.* not found"):
        compiled('syntax = "proto3"; import "other.proto"; message A {}', "5")


def test_proto2_tells_presence_and_requires_what_is_required():
    text = """syntax = "proto2";
    message A {
      required int32 id = 1; optional int32 n = 2 [default = 5];
      optional group G = 3 { optional int32 v = 4; }
    }"""
    rows = RowTypes(compiled(text, "it"))
    assert rows.row(b"\x08\1", (0,)) == {"id": 1, "n": None, "g": None}
    with pytest.raises(CorruptRecordError, match="a required field"):
        rows.row(b"", (0,))


@pytest.mark.parametrize(
    "document",
    [
        {"none": 1},
        {"id": "x"},
        {"small": 2**31},
        {"colour": "GREEN"},
        {"at": "today"},
        {"f": 1e39},
        5,
    ],
)
def test_a_document_that_does_not_fit_its_message_is_refused(document):
    with pytest.raises(UnfitMessageError):
        TYPES.encoded(document)


def test_sinks_have_documents_of_their_usual_form():
    read = FramedReader(lambda _: ("PROTOBUF", TEXT))
    row = read(frame(7) + TYPES.encoded(FULL))
    assert (row["big"], row["f"], row["y"], row["note"]) == (2**64 - 1, 0.1, "AAE=", "")
    assert (row["at"], row["left"]) == ("2024-02-29T10:00:00.123456+00:00", None)
    assert row["inner"] == {"v": "5", "at": "2024-02-29T10:00:00.123456789Z"}
    with pytest.raises(CorruptRecordError):
        read(frame(7) + b"\0\x0a")


DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "big": st.integers(0, 2**64 - 1),
        "yes": st.booleans(),
        "f": st.floats(width=32) | st.sampled_from(["NaN", "Infinity"]),
        "d": st.floats(),
        "s": st.text(st.characters(exclude_categories=["Cs"])),
        "y": st.binary().map(lambda raw: base64.b64encode(raw).decode()),
        "note": st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
        "at": st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "ns": st.lists(st.integers(-(2**31), 2**31 - 1)),
        "m": st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)),
        "right": st.integers(0, 1),
        "inners": st.lists(st.fixed_dictionaries({}, optional={"v": st.integers(0, 9)})),
        "boxed": st.integers(-1, 1),
    },
)


def as_json(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@given(DOCUMENTS)
def test_the_replay_and_the_verifier_read_the_same_row(document):
    """The one reads fields by their descriptors, the other Protobuf's own text in JSON."""
    raw = frame(7) + TYPES.encoded({name: as_json(value) for name, value in document.items()})
    statement = replayed(raw)
    assert statement.fault is None
    ours = [
        value if not isinstance(value, Decimal) else int(value) for value in statement.row or ()
    ]
    theirs = [
        int.from_bytes(value, "big", signed=True) if column.type.kind is Kind.DECIMAL else value
        for column, value in zip(ROWS.columns, verified(raw), strict=True)
    ]
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("key", [b"5", b'"5"', b'{"id": 5}'])
def test_a_tombstone_has_a_key_in_json_or_as_a_text(key):
    assert (
        key == b'"5"'
        or replayed(None, key).key == replayed(frame(7) + TYPES.encoded({"id": 5})).key
    )
    (other,) = DeclaredReader(LOG, Schemas(), 7).statements(key, None)
    assert (other.kind, other.name) == (("tombstone", "[5]") if key != b'"5"' else ("fault", None))


def test_a_key_of_a_message_is_read_by_its_own_schema():
    key = compiled('syntax = "proto3"; message Key { int64 id = 1; }', "it")
    reader = Interpreter(LOG, columns_of(EVENT, LOG.shape), {9: key}, {7: EVENT})
    raw = frame(9) + MessageTypes(key).encoded({"id": 5})
    (gone,) = reader.statements(raw, None)
    assert gone.is_tombstone
    assert gone.key == replayed(frame(7) + TYPES.encoded({"id": 5})).key


def test_a_follower_keeps_rows_as_they_are():
    row = [*ROWS.row(body(FULL), (0,)).values()]
    encoder = DeclaredRowEncoder(LOG, ROWS.columns)
    assert encoder.decode(encoder.encode(row)) == row


def test_a_sinks_table_has_the_types_of_the_message():
    reading = RecordReading(key_form="", value_form="", schema=lambda _: ("PROTOBUF", TEXT))
    types, _ = reading.shape(None, frame(7) + TYPES.encoded(FULL))
    assert [types[name] for name in ("id", "big", "at", "bigs", "inner", "m", "y")] == [
        "bigint",
        "numeric(20,0)",
        "timestamp with time zone",
        "text[]",
        "jsonb",
        "jsonb",
        "bytea",
    ]
    assert reading.read(frame(7) + TYPES.encoded({"id": 5}), "value")["id"] == 5
