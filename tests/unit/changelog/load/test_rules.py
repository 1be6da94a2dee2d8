"""What becomes of a record: maps of columns, lines of CSV, texts of COPY, fields for C."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.connect.rules.records.reading import BadRecordError, WrittenNumber
from changelog.contract.base.errors import ConfigurationError
from changelog.load.prepare import parse_into
from changelog.load.rules.cells import Raw, cell, line_of
from changelog.load.rules.columns import MissingError, of_tombstone, parse_columns, picked
from changelog.load.rules.schema import Fit, SchemaField, form_of, read_schema, type_of
from changelog.load.rules.separated import SeparatedError, fields_of
from changelog.load.rules.table import TableColumn
from changelog.native.loads import AvroKind, CellForm
from changelog.source.snapshot.snapshot import parse_row


def column(kind, base=None, element=None):
    return TableColumn("c", kind, base or kind, 0, element)


def test_a_map_names_parts_of_a_record():
    found = parse_columns("a=value.x.y, b=key.id,c=timestamp,d=header.by.whom,e")
    assert {name: str(source) for name, source in found.items()} == {
        "a": "value.x.y",
        "b": "key.id",
        "c": "timestamp",
        "d": "header.by.whom",
        "e": "value.e",
    }
    assert {name: str(each) for name, each in of_tombstone(found, ["a", "c"]).items()} == {
        "a": "key.y",
        "c": "timestamp",
    }


@pytest.mark.parametrize("text", ["", "a=", "a=valu.x", "a=offset.x", "a=header", "a=key,a=value"])
def test_what_is_no_map_is_refused(text):
    with pytest.raises(ConfigurationError):
        parse_columns(text)


def test_a_path_ends_at_null_and_is_refused_in_a_text():
    assert picked({"a": {"b": 1}}, ["a", "b"]) == 1
    assert picked({"a": None}, ["a", "b"]) is None
    assert picked({}, ["a", "b"]) is None
    with pytest.raises(MissingError):
        picked({"a": "text"}, ["a", "b"])


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"", [None]),
        (b",", [None, None]),
        (b'"",', [b"", None]),
        (b'a"b,"c', [b"ab,c"]),
        (b'"a\n""b""",c', [b'a\n"b"', b"c"]),
    ],
)
def test_a_line_of_csv_has_fields_and_nulls(line, fields):
    assert fields_of(line) == fields


@pytest.mark.parametrize("line", [b'"a', b"a\nb", b'"a"\n"b"'])
def test_what_is_no_line_of_csv_is_refused(line):
    with pytest.raises(SeparatedError):
        fields_of(line)


fields = st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=4)


@given(fields)
def test_a_line_of_copy_reads_back(cells):
    line = line_of(cells)
    assert line.count(b"\n") == 1
    assert list(parse_row(line[:-1])) == cells


@given(fields)
def test_a_quoted_line_of_csv_reads_back(cells):
    quoted = [b"" if each is None else b'"' + each.replace(b'"', b'""') + b'"' for each in cells]
    assert fields_of(b",".join(quoted)) == cells


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (column("numeric"), WrittenNumber("12345678901234567890.10"), b"12345678901234567890.10"),
        (column("boolean", "bool"), True, b"true"),
        (column("jsonb"), {"a": WrittenNumber("1.10")}, b'{"a":1.10}'),
        (column("jsonb"), '{"a": 1.10}', b'{"a": 1.10}'),
        (column("bytea"), "AP8=", b"\\x00ff"),
        (column("bytea"), Raw(b"\\x00"), b"\\x00"),
        (column("text[]", "_text", ("text", 25)), ["a", None, 'b"\\'], b'{"a",NULL,"b\\"\\\\"}'),
        (column("integer[]", "_int4", ("int4", 23)), [[1], [2]], b'{{"1"},{"2"}}'),
        (column("text"), [1, "x"], b'[1,"x"]'),
        (column("real", "float4"), 0.1, b"0.1"),
        (column("numeric(5,2)", "numeric"), WrittenNumber("1.100"), b"1.100"),
        (column("numeric(5,2)", "numeric"), WrittenNumber("1E2"), b"1E2"),
        (column("numeric(5,2)", "numeric"), "NaN", b"NaN"),
        (column("date"), None, None),
    ],
)
def test_a_value_has_its_text(kind, value, text):
    assert cell(kind)(value) == text


@pytest.mark.parametrize(
    ("text", "is_exact"),
    [
        ("1.25", True),
        ("1.250", True),
        ("1.251", False),
        ("1e-2", True),
        ("1e-3", False),
        ("1.255e1", True),
        ("1.2555e1", False),
        ("1.25E1", True),
        ("12.5E-2", False),
        ("-0.1e-1", True),
        ("7", True),
        ("NaN", True),
        ("-Infinity", True),
    ],
)
def test_a_number_is_written_where_the_column_keeps_each_of_its_digits(text, is_exact):
    write = cell(column("numeric(5,2)", "numeric"))
    for value in (WrittenNumber(text), text, Raw(text.encode())):
        if is_exact:
            assert write(value) == text.encode()
        else:
            with pytest.raises(BadRecordError, match="rounded"):
                write(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (column("numeric(5,2)", "numeric"), WrittenNumber("1.001")),
        (column("numeric(5,2)", "numeric"), WrittenNumber("1e-3")),
        (column("numeric(5,-2)", "numeric"), 150),
        (column("timestamp with time zone", "timestamptz"), "2024-01-01T00:00:00.0000001Z"),
        (column("timestamp(0) without time zone", "timestamp"), "2024-01-01T00:00:00.5"),
        (column("timestamp with time zone", "timestamptz"), 1_700_000_000),
        (column("bytea"), "no base64!"),
        (column("integer", "int4"), {"a": 1}),
        (column("integer", "int4"), [1]),
    ],
)
def test_what_would_be_rounded_or_guessed_is_refused(kind, value):
    with pytest.raises(BadRecordError):
        cell(kind)(value)


def field_of(kind, **more):
    text = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "f", "type": kind, **more}]}
    )
    found = read_schema(text)
    assert found is not None
    return found.fields[0]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize(
    ("kind", "to", "form"),
    [
        ("int", column("bigint", "int8"), (CellForm.INT8, None)),
        (["null", "long"], column("integer", "int4"), (CellForm.INT4, None)),
        (DECIMAL, column("numeric(12,4)", "numeric"), (CellForm.NUMERIC, None)),
        (DECIMAL, column("numeric(10,1)", "numeric"), Fit.NONE),
        (DECIMAL, column("integer", "int4"), Fit.NONE),
        (MICROS, column("timestamp with time zone", "timestamptz"), (CellForm.MICROS, None)),
        (MICROS, column("timestamp(3) with time zone", "timestamptz"), Fit.NONE),
        ("string", column("inet"), Fit.CAST),
        ("string", column("jsonb"), (CellForm.JSONB, None)),
        ("string", column("numeric(10,1)", "numeric"), Fit.NONE),
        ("double", column("real", "float4"), Fit.NONE),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, column("text"), Fit.NONE),
        (["int", "string"], column("text"), Fit.NONE),
        (
            {"type": "array", "items": ["null", "int"]},
            column("integer[]", "_int4", ("int4", 23)),
            (CellForm.ARRAY, CellForm.INT4),
        ),
    ],
)
def test_a_field_goes_to_a_column_exactly_or_not_at_once(kind, to, form):
    assert form_of(field_of(kind), to) == form


def test_a_column_that_is_made_has_the_type_of_its_field():
    assert type_of(field_of(["null", DECIMAL])) == "numeric(10,2)"
    assert type_of(field_of("string", pg_type="inet")) == "inet"
    assert type_of(field_of({"type": "array", "items": ["null", "string"]})) == "text[]"
    assert type_of(SchemaField("f", "f", kind=AvroKind.BYTES)) == "bytea"


def test_the_escape_of_our_log_is_known_and_a_foreign_union_is_not():
    escaped = field_of(["null", DECIMAL, "string"], pg_type="numeric(10,2)")
    assert (escaped.kind, escaped.branches) == (AvroKind.DECIMAL, ("null", "value", "text"))
    assert field_of(["null", DECIMAL, "string"]).kind is None


@pytest.mark.parametrize(
    ("into", "table", "found"),
    [
        ("postgres:postgresql://u@h:1/d/s.t", "", ("postgresql://u@h:1/d", "s.t")),
        ("postgres:host=/run dbname=d/t", "", ("host=/run dbname=d", "t")),
        ("postgres://h/d", "t", ("postgres://h/d", "t")),
        ("postgresql://h/d", "s.t", ("postgresql://h/d", "s.t")),
    ],
)
def test_a_target_is_an_address_and_a_table(into, table, found):
    assert parse_into(into, table) == found


@pytest.mark.parametrize("into", ["postgresql://h/d", "postgres:t", ""])
def test_a_target_without_a_table_is_refused(into):
    with pytest.raises(ConfigurationError):
        parse_into(into, "")
