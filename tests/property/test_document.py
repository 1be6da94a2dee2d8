"""JSON documents: what stands in them is the value, and the same value has the same bytes."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import EncodeError
from changelog.contract.forms.document import DocumentCodec, value_writer
from changelog.contract.rows.relation import Column, Relation, TableName
from changelog.contract.rows.text import parse_array
from changelog.contract.rows.types import ColumnType, Kind, array_type, column_type
from tests.support.builders import BIGINT, INTEGER, TEXT
from tests.support.source_texts import CASES, TEXTS_OF

_READ: dict[Kind, Callable[[Any], str]] = {
    Kind.BOOLEAN: lambda value: "t" if value is True else "f",
    Kind.BYTES: lambda value: "\\x" + b64decode(value, validate=True).hex(),
    Kind.TIMESTAMP: lambda value: str(value).replace("T", " "),
    Kind.TIMESTAMPTZ: lambda value: str(value).replace("T", " ").replace("+00:00", "+00"),
}


def read(kind: ColumnType, value: Any) -> str | None:
    """Return PostgreSQL's text of a value that `json.loads` gave, by the table of the forms."""
    if value is None or (kind.kind is Kind.ARRAY and isinstance(value, str)):
        return value
    if kind.kind is Kind.ARRAY:
        assert kind.element is not None
        return _array(kind.element, value)
    assert isinstance(value, int | Decimal) or kind.kind not in {Kind.INT, Kind.LONG}
    assert isinstance(value, str) or kind.kind not in {Kind.DECIMAL, Kind.STRING, Kind.UUID}
    return _READ.get(kind.kind, str)(value)


def _array(element: ColumnType, items: list[Any]) -> str:
    texts = [read(element, item) for item in items]
    return "{" + ",".join("NULL" if text is None else _item(text) for text in texts) + "}"


def _item(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unquoted(text: str) -> list[str | None] | str:
    """Take an array's text apart, so that one element quoted or not is the same."""
    items = parse_array(text.encode())
    if items is None:
        return text
    return [None if item is None else item.decode() for item in items]


def loads(text: str) -> Any:
    """Parse as a careful reader does: no number becomes a double."""
    return json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(("kind", "texts"), CASES, ids=lambda each: getattr(each, "name", ""))
@given(data=st.data())
def test_a_value_reads_back_as_postgresql_wrote_it(
    kind: ColumnType, texts: st.SearchStrategy[str], data: st.DataObject
) -> None:
    text = data.draw(texts)
    written = value_writer(kind)(text.encode())
    back = read(kind, loads(written))
    assert back is not None
    if kind.kind is Kind.ARRAY:
        assert unquoted(back) == unquoted(text)
    elif kind.kind in {Kind.FLOAT, Kind.DOUBLE} and text.lstrip("-") not in {"NaN", "Infinity"}:
        assert (float(back), back.startswith("-")) == (float(text), text.startswith("-"))
        assert Decimal(back) == Decimal(text)
    else:
        assert back == text
    assert "\n" not in written
    assert value_writer(kind)(text.encode()) == written


@pytest.mark.parametrize(
    ("base", "text", "document"),
    [
        ("bool", "t", "true"),
        ("int8", "-9223372036854775808", "-9223372036854775808"),
        ("float8", "1e+300", "1e+300"),
        ("float8", "1", "1.0"),
        ("float8", "-0", "-0.0"),
        ("float4", "-Infinity", '"-Infinity"'),
        ("numeric", "NaN", '"NaN"'),
        ("numeric", "1.10", '"1.10"'),
        ("bytea", "\\x00ff", '"AP8="'),
        ("date", "0044-03-15 BC", '"0044-03-15 BC"'),
        ("timestamp", "2024-01-31 12:34:56.789", '"2024-01-31T12:34:56.789"'),
        ("timestamp", "-infinity", '"-infinity"'),
        ("timestamptz", "2024-01-31 12:34:56+00", '"2024-01-31T12:34:56+00:00"'),
        ("timestamptz", "4714-11-24 00:00:00+00 BC", '"4714-11-24T00:00:00+00:00 BC"'),
        ("timestamptz", "infinity", '"infinity"'),
        ("jsonb", '{"a": 1e400}', '"{\\"a\\": 1e400}"'),
        ("text", 'a"\\\n\t\x01/ü\u2028', '"a\\"\\\\\\n\\t\\u0001/ü\u2028"'),
        ("interval", "P-1Y2M", '"P-1Y2M"'),
    ],
)
def test_the_forms(base: str, text: str, document: str) -> None:
    assert value_writer(column_type(base, base))(text.encode()) == document


@pytest.mark.parametrize(
    ("element", "text", "document"),
    [
        ("int4", "{1,NULL,-3}", "[1,null,-3]"),
        ("int4", "{}", "[]"),
        ("int4", "[0:1]={1,2}", '"[0:1]={1,2}"'),
        ("int4", "{{1},{2}}", '"{{1},{2}}"'),
        ("text", '{"a,b",NULL,"NULL",""}', '["a,b",null,"NULL",""]'),
        ("numeric", "{1.50,NaN}", '["1.50","NaN"]'),
        ("timestamptz", '{"2024-01-31 00:00:00+00"}', '["2024-01-31T00:00:00+00:00"]'),
    ],
)
def test_the_forms_of_arrays(element: str, text: str, document: str) -> None:
    kind = array_type(column_type(element, element), f"{element}[]")
    assert value_writer(kind)(text.encode()) == document


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ("bool", b"yes"),
        ("int4", b"one"),
        ("bytea", b"abc"),
        ("timestamptz", b"2024-01-31 12:00:00+01"),
        ("float8", b"ten"),
        ("text", b"\xff"),
    ],
)
def test_what_has_no_form_is_refused_by_table_and_column(base: str, text: bytes) -> None:
    codec = DocumentCodec(_relation(column_type(base, base)))
    with pytest.raises(EncodeError, match=r'table "public.t", column "c0"'):
        codec.encode_value((text,))


def _relation(*kinds: ColumnType, key: tuple[str, ...] = ()) -> Relation:
    columns = tuple(Column(f"c{number}", kind) for number, kind in enumerate(kinds))
    return Relation(1, TableName("public", "t"), columns, key)


@given(st.integers(-(2**63), 2**63 - 1), TEXTS_OF, st.integers(0, 9))
def test_a_key_has_the_same_bytes_always_and_no_other_key_has_them(
    number: int, text: str, other: int
) -> None:
    relation = _relation(BIGINT, INTEGER, TEXT, key=("c2", "c0"))
    key = (text.encode(), str(number).encode())
    raw = DocumentCodec(relation).encode_key(key)
    assert raw == DocumentCodec(relation).encode_key(key)
    assert json.loads(raw) == {"c2": text, "c0": number}
    assert list(json.loads(raw)) == ["c2", "c0"]
    # No blanks and no escapes but those that JSON demands: any canonical writer gives this.
    canonical = json.dumps(json.loads(raw), ensure_ascii=False, separators=(",", ":"))
    assert raw.decode() == canonical
    if other != number:
        assert DocumentCodec(relation).encode_key((text.encode(), str(other).encode())) != raw


def test_columns_have_their_own_names_and_a_null_is_said() -> None:
    columns = (Column('a "b"', INTEGER), Column("ü", TEXT))
    codec = DocumentCodec(Relation(1, TableName("s", "t"), columns, ('a "b"',)))
    assert codec.encode_value((b"1", None)).decode() == '{"a \\"b\\"":1,"ü":null}'
    assert codec.encode_key((b"1",)) == b'{"a \\"b\\"":1}'
