"""Lines as kcat writes them, where kcat itself cannot be asked: Avro, bytes, and its mistakes."""

import json

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.lines.forms.kcat import envelope_lines, parse_tokens, string, unpacked, with_schema
from changelog.lines.forms.render import template_lines
from changelog.lines.forms.shown import As, token
from changelog.lines.forms.template import Field
from tests.unit.changelog.lines.records import Made


def framed(number):
    return b"\0" + number.to_bytes(4, "big") + b"..."


def envelope(*records, form=As.AVRO):
    show = token(form, lambda raw: {"n": len(raw)})
    key, value = (
        with_schema(show, f"{each}_schema_id") if form is As.AVRO else show
        for each in ("key", "value")
    )
    lines = envelope_lines(
        "things", key=key, value=value, broker=lambda record: record.of + 7, delimiter=b"\n"
    )
    return lines.render(records)


def test_the_object_of_an_avro_record_has_the_ids_of_its_schemas():
    found = envelope(Made(3, 1, framed(5), framed(1 << 20)), Made(4, 1, framed(5), None))
    row, gone = map(json.loads, found.lines.splitlines())
    assert (row["key"], row["key_schema_id"]) == ({"n": 8}, 5)
    assert (row["payload"], row["value_schema_id"]) == ({"n": 8}, 1 << 20)
    assert (row["tstype"], row["ts"], row["broker"]) == ("create", 1_700_000_000_000, 8)
    assert "headers" not in row
    assert (gone["payload"], "value_schema_id" in gone) == (None, False)


def test_bytes_that_are_no_text_are_no_string_of_json():
    found = envelope(Made(1), Made(2, v=b"\xff"), form=As.TEXT)
    assert found.records == 1
    assert "offset 2: the value cannot be shown" in str(found.fault)


def test_an_empty_value_is_no_null():
    lines = template_lines(
        parse_tokens("%k=%s %S\n"), key=None, value=None, null=b"NULL", delimiter=b""
    )
    found = lines.render([Made(1, v=b""), Made(2, v=None), Made(3, k=None, v=b"x")])
    assert found.lines == b"k= 0\nk=NULL -1\nNULL=x 1\n"


def test_numbers_are_read_from_the_end_that_is_named():
    assert unpacked("<h >h")(b"\x01\0\0\x01") == b"1 1"
    assert unpacked("i")(b"") == b""


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        (r"\x41\x4a\101\061\\\q%%", [b"A", b"J", b"e", b"1", b"\\", b"q", b"%"]),
        ('{"key": "%k"}', [b'{"key": "', Field("key"), b'"}']),
    ],
)
def test_a_template_is_read_as_kcat_reads_it(template, parts):
    assert parse_tokens(template) == parts


@pytest.mark.parametrize("template", ["%x", "100%", "{value}"])
def test_what_is_no_token_is_refused(template):
    with pytest.raises(ConfigurationError, match="-f"):
        parse_tokens(template)


def test_control_characters_are_escaped_with_capitals_as_by_yajl():
    assert string(b"\x00\x1f\x0b\n\x7f \\u001f") == rb'"\u0000\u001F\u000B\n' + b'\x7f \\\\u001f"'
