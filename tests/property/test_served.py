"""Rows in JSON form are read by column as they are one by one: the same table, the same faults."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.verify.served.documents import FAULT_COLUMN, DocumentForm, DocumentPage, text_page
from views.verify.values import jsoncolumns
from views.verify.values.jsonform import identifier
from views.verify.values.types import Type, parse_type

_YEARS = st.one_of(st.integers(1, 9999), st.integers(0, 9_999_999))
_PLAIN_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def _days(draw: st.DrawFn) -> str:
    era = draw(st.sampled_from(["", "", "", " BC"]))
    return f"{draw(_YEARS):04d}-{draw(st.integers(1, 12)):02d}-{draw(st.integers(1, 29)):02d}{era}"


@st.composite
def _moments(draw: st.DrawFn, zone: str) -> str:
    day = draw(_days())
    clock = f"T{draw(st.integers(0, 23)):02d}:00:{draw(st.integers(0, 59)):02d}.000001"
    bc = " BC" if day.endswith(" BC") else ""
    return day.removesuffix(" BC") + clock + zone + bc


def _floats(width: Any) -> st.SearchStrategy[Any]:
    ends = st.sampled_from(["NaN", "Infinity", "-Infinity", -0.0, 1e-45, 3.4e38])
    return (
        st.floats(allow_nan=False, allow_infinity=False, width=width)
        | ends
        | st.integers(-(2**70), 2**70)
    )


def _plain(number: int, scale: int) -> str:
    digits = f"{abs(number):0{scale + 1}d}"
    point = len(digits) - scale
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:point]}{'.' if scale else ''}{digits[point:]}"


def _values(kind: Type) -> st.SearchStrategy[Any]:
    """Return values in the form that sinks promise, nearly all."""
    match kind.name:
        case "boolean":
            found: st.SearchStrategy[Any] = st.booleans()
        case "tinyint" | "smallint" | "int" | "bigint":
            bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[kind.name]
            found = st.integers(-(2**bits), 2**bits - 1)
        case "float" | "double":
            found = _floats(32 if kind.name == "float" else 64)
        case "decimal":
            most = 10**kind.precision - 1
            found = st.integers(-most, most).map(lambda n: _plain(n, kind.scale))
        case "string":
            found = _PLAIN_TEXTS
        case "binary":
            found = st.binary(max_size=4).map(lambda raw: base64.b64encode(raw).decode())
        case "date":
            found = _days() | st.sampled_from(["infinity", "-infinity"])
        case "timestamp" | "timestamp_ntz":
            zone = "Z" if kind.name == "timestamp" else ""
            found = _moments(zone) | st.sampled_from(["infinity", "-infinity"])
        case "array":
            found = st.lists(_values(kind.fields[0][1]), max_size=3)
        case "struct":
            found = st.fixed_dictionaries({name: _values(field) for name, field in kind.fields})
        case _:
            found = st.dictionaries(_PLAIN_TEXTS, _values(kind.fields[1][1]), max_size=3)
    return st.none() | found


_ODD = st.sampled_from(
    [1.0, 1.5, True, 2**31, 2**64, -(2**70), 10**400, 1e300, 3.4028235677973366e38, "", " ",
     "1.50", "1.5", "01.50", "1e2", "-0.00", "99999999.00", "\u0663.\u0665\u0660",
     "nan", "NAN", "0000-01-01",
     "2013-02-30", "2013-01-01\n", "2013-01-01T24:00:00.000000Z", "2013-01-01T00:60:00.000000Z",
     "2013-01-01T00:00:00.000000", "2013-01-01T00:00:00.000000Z\n", "2013-01-01T00:00:00Z",
     "9999999-01-01", "0044-03-15 BC", "0044-03-15T00:00:00.000000Z BC", "infinity BC", "%%%",
     "AP9=", "AP8=", "é", "\x00", "\ud800", [], [None], [[]], {}, {"a": 1}, {"\ud800": 1}, [{}]]
)  # fmt: skip
_KINDS = [parse_type(text) for text in (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(4,2)",
    "decimal(38,10)", "decimal(5,0)", "string", "binary", "date", "timestamp", "timestamp_ntz",
    "array<int>", "array<array<double>>", "struct<a:int,b:string>", "map<string,decimal(4,2)>",
    "array<struct<a:date,b:array<string>>>", "struct<s:struct<x:float>>", "map<string,array<int>>",
)]  # fmt: skip
_KEYS = [parse_type(text) for text in (
    "bigint", "string", "decimal(4,2)", "boolean", "double", "float", "date", "array<string>",
)]  # fmt: skip


@st.composite
def _pages(draw: st.DrawFn) -> tuple[list[tuple[str, Type]], list[str], list[str], list[bytes]]:
    """Return columns, key, ids and texts: half of the pages have something odd."""
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=3))
    keys = draw(st.lists(st.sampled_from(_KEYS), min_size=1, max_size=2))
    columns = [(f"k{n}", kind) for n, kind in enumerate(keys)]
    key = list(columns)
    columns += [(f"c{n}", kind) for n, kind in enumerate(kinds)]
    rows = draw(
        st.lists(
            st.fixed_dictionaries({name: _values(kind) for name, kind in columns}),
            min_size=1,
            max_size=5,
        )
    )
    ids = [identifier(row, key) for row in rows]
    if draw(st.booleans()):
        place = draw(st.integers(0, len(rows) - 1))
        match draw(st.sampled_from(["value", "value", "value", "missing", "unknown", "id"])):
            case "value":
                rows[place][draw(st.sampled_from(columns))[0]] = draw(_ODD)
            case "missing":
                del rows[place][columns[-1][0]]
            case "unknown":
                rows[place]["more"] = 1
            case _:
                ids[place] += "0"
    texts = [json.dumps(row, ensure_ascii=draw(st.booleans())) for row in rows]
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    if draw(st.integers(0, 9)) == 0:
        raw[0] = draw(
            st.sampled_from(
                [b"", b"{", b"[]", b"1", b"null", b'{"k0":1,"k0":2}', b'{"k0":NaN}', b"\xff",
                 raw[0][:-1] + b',"k0":null}', raw[0] + b" ", b"\xef\xbb\xbf" + raw[0],
                 b"[" * 100_000]
            )
        )  # fmt: skip
    return columns, [name for name, _ in key], ids, raw


def _seen(value: Any) -> Any:
    """Return a value of which equality tells -0.0 from 0.0, and a NaN from none."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    if isinstance(value, dict):
        return {name: _seen(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_seen(each) for each in value]
    return value


def _rows(form: DocumentForm, page: DocumentPage) -> list[Any]:
    table = form.table(page)
    # Dates and moments as the numbers that they are: Python has no others than its own years.
    return [table.schema, *(_seen(_numbers(column)) for column in table.columns)]


def _numbers(column: Any) -> Any:

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_date(kind):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_list(kind):
        return [_numbers(column.flatten()), pc.list_value_length(column).to_pylist()]
    if pa.types.is_struct(kind):
        fields = [_numbers(pc.struct_field(column, n)) for n in range(kind.num_fields)]
        return [fields, column.is_null().to_pylist()]
    return column.to_pylist()


@given(_pages())
def test_a_page_read_by_column_is_the_page_read_row_by_row(page: Any) -> None:
    columns, key, ids, texts = page
    form = DocumentForm(columns, key)
    whole = text_page(ids, texts)
    strictly = DocumentPage(None, whole.documents)
    assert _rows(form, whole) == _rows(form, strictly)


@given(st.data())
def test_ordinary_rows_are_read_by_column(data: Any) -> None:
    """What is not odd must not go the slow way: else the law above says nothing."""
    kind = data.draw(st.sampled_from(_KINDS))
    columns = [("id", parse_type("bigint")), ("c", kind)]
    row = {"id": 7, "c": data.draw(_values(kind))}
    text = json.dumps(row).encode()
    table = DocumentForm(columns, ["id"]).table(text_page(["7"], [text]))
    if table.column(FAULT_COLUMN).to_pylist() == [None]:
        jsoncolumns.columns_of(["7"], [orjson.loads(text)], columns, [columns[0]])


def _lenient(text: str, form: str) -> Any:
    """The defect: any text of a number is a decimal, as a lenient cast has it."""
    return pc.is_valid(text)


def test_twin_a_quick_reader_that_takes_any_text_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = [("id", parse_type("int")), ("d", parse_type("decimal(4,2)"))]
    whole = text_page(["1"], [b'{"id":1,"d":"1.5"}'])
    form = DocumentForm(columns, ["id"])
    assert form.table(whole).column(FAULT_COLUMN).to_pylist() != [None]
    monkeypatch.setattr("views.verify.values.jsoncolumns.pc.match_substring_regex", _lenient)
    assert form.table(whole).column(FAULT_COLUMN).to_pylist() == [None]
