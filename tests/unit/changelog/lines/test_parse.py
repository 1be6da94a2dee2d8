"""Lines to records: `changelog.lines.forms.parse`, and how lines are taken."""

import fcntl
import json
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.lines.forms.headers import shown, written
from changelog.lines.forms.parse import (
    InputError,
    LineFormat,
    ParsedRecord,
    bytes_of,
    json_parser,
    line_parser,
)
from changelog.lines.forms.render import json_lines
from changelog.lines.forms.shown import As, token
from changelog.lines.writing import WritingStoppedError, split
from tests.unit.changelog.lines.records import Made


def test_a_line_is_a_key_and_a_value():
    parse = line_parser(LineFormat(headers=(("h", b"1"),)))
    assert parse(b"a\tb\tc") == ParsedRecord(b"a", b"b\tc", [("h", b"1")])
    assert parse(b"\t") == ParsedRecord(b"", b"", [("h", b"1")])
    with pytest.raises(InputError, match="no separator"):
        parse(b"a b")
    assert line_parser(LineFormat(keyed=False))(b"a\tb") == ParsedRecord(None, b"a\tb", [])
    assert line_parser(LineFormat(separator=b"::"))(b"a::b") == ParsedRecord(b"a", b"b", [])


def test_a_null_is_written_on_request_alone():
    assert line_parser(LineFormat())(b"a\t") == ParsedRecord(b"a", b"", [])
    assert line_parser(LineFormat(null=b""))(b"a\t") == ParsedRecord(b"a", None, [])
    assert line_parser(LineFormat(null=b"NULL"))(b"NULL\tNULL") == ParsedRecord(None, None, [])
    assert json_parser(LineFormat())(b'{"key":null,"value":""}') == ParsedRecord(None, b"", [])
    assert json_parser(LineFormat(null=b""))(b'{"key":"k","value":""}') == ParsedRecord(
        b"k", None, []
    )


def test_an_object_keeps_what_is_no_text_as_it_is_written():
    line = (
        b' { "value" : {"n": 1.10, "big": 123456789012345678901234567890} , "key": 1.0,"offset":3}'
    )
    assert json_parser(LineFormat())(line) == ParsedRecord(
        b"1.0", b'{"n": 1.10, "big": 123456789012345678901234567890}', []
    )
    assert json_parser(LineFormat(keyed=False))(b'{"value":[]}').value == b"[]"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "no object"),
        (b"[]", "no object"),
        (b'{"key":"a","value":"b"', "no object"),
        (b'{"key":"a","value":NaN}', "no object"),
        (b'{"key":"a","value":"b"} x', "something stands behind"),
        (b'{"key":"a","key":"b","value":1}', '"key" is there twice'),
        (b"\xff", "no object"),
        (b"{}", 'has no "key"'),
        (b'{"key":"a"}', 'has no "value"'),
        (b'{"key":"a","value":"b","val":1}', 'has "val"'),
        (b'{"key":"a","value":"b","headers":[1]}', "headers cannot be used"),
        (b'{"key":"a","value":"b","headers":{"h":1}}', "headers cannot be used"),
        (b'{"key":"a","value":"b","headers":{"h":{"base64":"%"}}}', "headers cannot be used"),
        (b'{"key":"\\ud800","value":"b"}', "cannot be"),
    ],
)
def test_what_is_no_record_is_told(line, said):
    with pytest.raises(InputError, match=said):
        json_parser(LineFormat())(line)


def test_texts_stand_for_bytes():
    parse = line_parser(LineFormat(key=bytes_of(As.HEX), value=bytes_of(As.BASE64)))
    assert parse(b"00ff\tAP8=") == ParsedRecord(b"\x00\xff", b"\x00\xff", [])
    with pytest.raises(InputError, match="the key is not in its form"):
        parse(b"0\tAP8=")
    with pytest.raises(InputError, match="the value is not in its form"):
        parse(b"00\tAP8")
    assert line_parser(LineFormat(value=bytes_of(As.JSON)))(b'a\t{"b": 1.0}').value == b'{"b": 1.0}'
    with pytest.raises(InputError, match="no JSON document"):
        line_parser(LineFormat(value=bytes_of(As.JSON)))(b"a\tb")
    with pytest.raises(ConfigurationError):
        bytes_of(As.AVRO)


names = st.text(max_size=3)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=9)), max_size=4)


@given(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9), headers)
def test_what_read_shows_write_takes(key, value, found):
    show, read = token(As.BASE64, lambda _: None), bytes_of(As.BASE64)
    record = Made(0, k=key, v=value, h=found)
    line = json_lines("t", key=show, value=show, delimiter=b"\n").render([record]).lines
    sent = json_parser(LineFormat(key=read, value=read))(line)
    assert sent[:2] == (key, value)
    for name in {name for name, _ in found}:
        assert [v for n, v in sent.headers if n == name] == [v for n, v in found if n == name]


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_our_own_headers_come_back_as_they_were(epoch, lsn, sequence):
    ours = encode_headers(Position(epoch, Lsn(lsn), sequence), Op.DELETE, 1_706_704_496_789_000)
    assert written(json.loads(json.dumps(shown(ours)))) == ours
    assert written({"op": "buy", "ts": "t", "position": "p"}) == [
        ("op", b"buy"), ("ts", b"t"), ("position", b"p"),
    ]  # fmt: skip


def taken(*chunks, delimiter=b"\n", **how):
    ours, theirs = os.pipe()
    for chunk in chunks:
        os.write(theirs, chunk)
    os.close(theirs)
    try:
        return [line for some in split(delimiter, lambda: False, ours, **how) for line in some]
    finally:
        os.close(ours)


def test_an_input_is_split_where_lines_end():
    assert taken(b"a\nb\n\nc") == [b"a", b"b", b"", b"c"]
    assert taken(b"a\n") == [b"a"]
    assert taken() == []
    assert taken(b"a--b-", b"-c", delimiter=b"--") == [b"a", b"b", b"c"]
    with pytest.raises(InputError, match="more than 3 bytes"):
        taken(b"abcd", most=3)


def test_a_wait_for_input_can_be_ended():
    ours, theirs = os.pipe()
    try:
        with pytest.raises(WritingStoppedError):
            list(split(b"\n", lambda: True, ours))
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_process_with_many_files_open_reads_its_input_too():
    """`select()` knows no descriptor past 1,023."""
    ours, theirs = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    high = fcntl.fcntl(ours, fcntl.F_DUPFD, 1_500)
    try:
        os.write(theirs, b"a\nb")
        os.close(theirs)
        assert [line for lines in split(b"\n", lambda: False, high) for line in lines] == [
            b"a",
            b"b",
        ]
    finally:
        os.close(high)
        os.close(ours)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
