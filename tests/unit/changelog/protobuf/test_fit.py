"""Documents in Protobuf's JSON form: taken exactly, or refused with the place."""

import pytest

from changelog.connect.produce import encode
from changelog.connect.produce.errors import ProduceError
from changelog.connect.produce.requests import ValueForm, parsed
from changelog.contract.base.errors import CorruptRecordError
from changelog.protobuf.compile import UnfitMessageError, compiled
from changelog.protobuf.messages import MessageTypes

TEXT = """
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message M {
  string s = 1;
  bytes b = 2;
  int64 i = 3;
  double d = 4;
  float f = 5;
  repeated string r = 6;
  map<string, string> m = 7;
  map<int32, string> im = 8;
  int32 a_b = 9;
  M inner = 10;
  google.protobuf.Struct any = 11;
  google.protobuf.Value value = 12;
  google.protobuf.StringValue w = 13;
  google.protobuf.BytesValue wb = 14;
  google.protobuf.Timestamp t = 15;
}
"""
TYPES = MessageTypes(compiled(TEXT, "it"))


def document(text):
    """Encode a document as a request brings it, and read it again; without the defaults."""
    body = f'{{"value_schema": "x", "records": [{{"value": {text}}}]}}'.encode()
    (record,) = parsed(ValueForm.PROTOBUF, body).records
    message = TYPES.parsed(TYPES.encoded(record.value)[1:])
    names = {field.name for field, _ in message.ListFields()}
    return {name: value for name, value in TYPES.document(message).items() if name in names}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"s": 1.10}', "s: it is no text"),
        ('{"s": 1}', "s: it is no text"),
        ('{"r": ["x", 1.5]}', "r: [1]: it is no text"),
        ('{"m": {"k": 1.5}}', "m: k: it is no text"),
        ('{"w": 1.5}', "w: it is no text"),
        ('{"t": 1.5}', "t: it is no text"),
        ('{"inner": {"inner": {"s": 2.0}}}', "inner: inner: s: it is no text"),
        ('{"b": "!!"}', "b: it is not base64"),
        ('{"b": "AAB="}', "b: it is not base64"),
        ('{"b": "A==="}', "b: it is not base64"),
        ('{"b": 12.34}', "b: it is no text"),
        ('{"wb": "a b="}', "wb: it is not base64"),
        ('{"i": "1_000"}', "i: it is no number"),
        ('{"i": "\\u0661"}', "i: it is no number"),
        ('{"d": " 1"}', "d: it is no number"),
        ('{"d": 1e400}', "d: it is no number that fits"),
        ('{"any": {"a": 1e400}}', "any: a: it is no number that fits"),
        ('{"aB": 1, "a_b": 2}', "a_b: the field is there twice"),
        ('{"im": {"1": "a", "01": "b"}}', "im: 01: it is no integer"),
        ('{"no": 1}', "no: M has no such field"),
        ('{"inner": []}', "inner: it is no object"),
        ("[1]", "it is no object"),
        ('{"inner": ' * 150 + "{}" + "}" * 150, ""),
    ],
)
def test_what_is_only_near_a_value_is_refused(text, place):
    with pytest.raises(UnfitMessageError) as caught:
        document(text)
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ('{"b": "_-8="}', {"b": "/+8="}),
        ('{"b": "AAA"}', {"b": "AAA="}),
        ('{"i": 1e3}', {"i": "1000"}),
        ('{"i": "-12"}', {"i": "-12"}),
        ('{"d": "NaN", "f": "-Infinity"}', {"d": "NaN", "f": "-Infinity"}),
        ('{"d": 1.10}', {"d": 1.1}),
        ('{"aB": 1}', {"a_b": 1}),
        ('{"im": {"-1": "a"}}', {"im": {"-1": "a"}}),
        ('{"any": {"a": [1.10, "1.10", null, true]}}', {"any": {"a": [1.1, "1.10", None, True]}}),
        ('{"value": 1.10}', {"value": 1.1}),
        ('{"w": "1.5"}', {"w": "1.5"}),
        ('{"s": null, "r": null}', {}),
        ('{"t": "2024-01-01T00:00:00+01:00"}', {"t": "2023-12-31T23:00:00Z"}),
    ],
)
def test_what_fits_is_taken(text, there):
    assert document(text) == there


def test_a_schema_without_a_message_is_refused_before_it_is_registered():
    with pytest.raises((ProduceError, CorruptRecordError), match="no message"):
        encode._encoder(ValueForm.PROTOBUF, 'syntax = "proto3";')
