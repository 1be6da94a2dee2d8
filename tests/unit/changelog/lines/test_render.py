"""Batches to lines: `changelog.lines.forms.render`, with its headers and the forms of values."""

import json

import pytest

from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    UnavailableLogError,
)
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.rows.codec import frame
from changelog.lines.forms.render import json_lines, template_lines
from changelog.lines.forms.shown import As, parse_form, plain, token
from changelog.lines.forms.template import parse_template
from tests.unit.changelog.lines.records import Made

OURS = encode_headers(Position(1, Lsn.parse("0/16B3748"), 7), Op.UPDATE, 1_706_704_496_789_000)


def decoded(raw):
    if raw[5:] == b"away":
        raise UnavailableLogError("the registry is away")
    if raw[5:] == b"bad":
        raise CorruptRecordError("it is bad")
    return {"id": raw[5:].decode()} if raw[5:] != b"text" else "text"


def template(text, *, form=As.AUTO, null=b"NULL"):
    show = plain(form, decoded)
    return template_lines(parse_template(text), key=show, value=show, null=null, delimiter=b"\n")


def objects(*records, form=As.AUTO):
    show = token(form, decoded)
    found = json_lines("things", key=show, value=show, delimiter=b"\n").render(records)
    assert (found.records, found.fault) == (len(records), None)
    return [json.loads(line) for line in found.lines.splitlines()]


def test_each_field_has_its_place():
    every = (
        "{topic}/{partition}/{offset} {timestamp} {time} {key_bytes}+{value_bytes} {key}={value} "
        "{lsn} {position} {op} {ts} {header.op} {header.none} 100%"
    )
    (ours, other) = (
        template(every).render([Made(4, of=1, h=OURS), Made(5, v=None)]).lines.split(b"\n")[:2]
    )
    assert ours == (
        b"things/1/4 1700000000000 2023-11-14T22:13:20+00:00 1+1 k=v 0/16B3748 1:0/16B3748:7 u "
        b"2024-01-31T12:34:56.789+00:00 u NULL 100%"
    )
    assert other == (
        b"things/0/5 1700000000000 2023-11-14T22:13:20+00:00 1+0 k=NULL NULL NULL NULL NULL NULL "
        b"NULL 100%"
    )


def test_bytes_stand_as_they_are_in_a_template():
    found = template("{value}").render([Made(0, v=b"\xff\n"), Made(1, v=b"")])
    assert found.lines == b"\xff\n\n\n"
    assert template("x%b").render([Made(0), Made(1)]).lines == b"x%b\nx%b\n"


def test_framed_records_are_decoded_and_others_are_texts():
    records = [Made(0, k=frame(1) + b"text", v=frame(1) + b"7"), Made(1, v=b"\0ab")]
    assert template("{key} {value}").render(records).lines == b'text {"id":"7"}\nk \0ab\n'
    assert [each["value"] for each in objects(*records)] == [{"id": "7"}, "\0ab"]


@pytest.mark.parametrize(
    ("form", "raw", "shown", "value"),
    [
        (As.TEXT, b'a"\x01', b'a"\x01', 'a"\x01'),
        (As.JSON, b'{"a":\n1}', b'{"a": 1}', {"a": 1}),
        (As.AVRO, frame(1) + b"7", b'{"id":"7"}', {"id": "7"}),
        (As.HEX, b"\x00\xff", b"00ff", "00ff"),
        (As.BASE64, b"\x00\xff", b"AP8=", "AP8="),
    ],
)
def test_forms_of_values(form, raw, shown, value):
    record = Made(0, v=raw, k=None)
    assert template("{value}", form=form).render([record]).lines == shown + b"\n"
    (found,) = objects(record, form=form)
    assert (found["key"], found["value"]) == (None, value)
    assert parse_form(form.value) is form


def test_a_form_that_there_is_not():
    with pytest.raises(ConfigurationError, match="auto, text"):
        parse_form("protobuf")


def test_an_object_holds_all_of_a_record():
    headers = [("a", b"1"), ("b", None), ("a", b"\xff"), ("c", "t")]
    assert objects(Made(3, of=2, v=None, h=headers), Made(4, h=OURS)) == [
        {
            "topic": "things",
            "partition": 2,
            "offset": 3,
            "timestamp": 1_700_000_000_000,
            "key": "k",
            "value": None,
            "headers": {"a": ["1", {"base64": "/w=="}], "b": None, "c": "t"},
        },
        {
            "topic": "things",
            "partition": 0,
            "offset": 4,
            "timestamp": 1_700_000_000_000,
            "key": "k",
            "value": "v",
            "headers": {
                "position": "1:0/16B3748:7",
                "op": "u",
                "ts": "2024-01-31T12:34:56.789+00:00",
            },
        },
    ]


def test_headers_of_others_that_are_called_as_ours_are_texts():
    (found,) = objects(Made(0, h=[("op", b"buy"), ("ts", b"12345678")]))
    assert found["headers"] == {"op": "buy", "ts": "12345678"}


def test_a_record_that_cannot_be_shown_ends_behind_the_lines_before_it():
    batch = [Made(0), Made(1, of=3, k=frame(1) + b"bad"), Made(2)]
    found = template("{value}{key}").render(batch)
    assert (found.lines, found.records) == (b"vk\n", 1)
    assert str(found.fault) == (
        'topic "things", partition 3, offset 1: the key cannot be shown: it is bad | hint: '
        "`--key-as hex` shows it; `--partition 3 --from 2` goes on behind it"
    )
    assert isinstance(found.fault, CorruptRecordError)


def test_a_registry_that_is_away_is_no_fault_of_a_record():
    found = template("{value}").render([Made(0), Made(1, v=frame(1) + b"away")])
    assert (found.lines, str(found.fault)) == (b"v\n", "the registry is away")


def test_a_text_in_an_object_has_to_be_utf8():
    show = token(As.TEXT, decoded)
    found = json_lines("t", key=show, value=show, delimiter=b"\n").render([Made(9, v=b"\xff")])
    assert found.records == 0
    assert "offset 9: the value cannot be shown: it is no text in UTF-8" in str(found.fault)
