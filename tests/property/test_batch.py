"""The batch encoders give the bytes of the row encoders, whatever the rows hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelog.batch.fields import Fields
from changelog.batch.frames import Frames
from changelog.batch.pool import Pool
from changelog.batch.rows import BatchCodec, fields_of
from changelog.contract.codec import SchemaIds, key_of
from changelog.contract.errors import EncodeError, ProtocolError
from changelog.contract.types import ColumnType, column_type
from changelog.source.pgoutput import InsertMessage, decode
from tests.support.builders import (
    BIGINT,
    INTEGER,
    INTEGERS,
    KEY_SCHEMA_ID,
    TEXT,
    TEXTS,
    VALUE_SCHEMA_ID,
    decimal_type,
    make_codec,
    make_relation,
)

IDS = SchemaIds(KEY_SCHEMA_ID, VALUE_SCHEMA_ID)
TEXTS_OF = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)


def _fixed(value: Decimal) -> str:
    return format(value, "f")


def _decimals(digits: int, scale: int) -> st.SearchStrategy[str]:
    limit = 10**digits - 1
    numbers = st.integers(-limit, limit).map(lambda n: _fixed(Decimal(n).scaleb(-scale)))
    return numbers | st.sampled_from(["NaN", "Infinity", "-Infinity"])


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _single_text(value: float) -> str:
    return _float_text(float(np.float32(value))) if abs(value) < 1e38 else "1e+38"


_MOMENTS = st.datetimes().map(lambda moment: moment.isoformat(" ")) | st.sampled_from(
    [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00 BC",
        "20000-01-01 00:00:00.5",
        "2000-01-01 00:00:00.12",
    ]
)
_DATES = st.dates(date(1, 1, 1)).map(str) | st.sampled_from(
    ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"]
)
CASES: list[tuple[ColumnType, st.SearchStrategy[str]]] = [
    (column_type("bool", "boolean"), st.sampled_from("tf")),
    (column_type("int2", "smallint"), st.integers(-(2**15), 2**15 - 1).map(str)),
    (INTEGER, st.integers(-(2**31), 2**31 - 1).map(str)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1).map(str)),
    (column_type("float8", "double precision"), st.floats().map(_float_text)),
    (column_type("float4", "real"), st.floats(width=32).map(_single_text)),
    (decimal_type(10, 2), _decimals(10, 2)),
    (decimal_type(18, 0), _decimals(18, 0)),
    (decimal_type(18, 18), _decimals(18, 18)),
    (decimal_type(38, 10), _decimals(38, 10)),
    (column_type("numeric", "numeric"), _decimals(30, 7)),
    (TEXT, TEXTS_OF),
    (column_type("bytea", "bytea"), st.binary(max_size=20).map(lambda raw: "\\x" + raw.hex())),
    (column_type("date", "date"), _DATES),
    (column_type("timestamp", "timestamp without time zone"), _MOMENTS),
    (
        column_type("timestamptz", "timestamp with time zone"),
        _MOMENTS.map(lambda t: t if t[-1].isalpha() and "BC" not in t else _zoned(t)),
    ),
    (column_type("uuid", "uuid"), st.uuids().map(str)),
    (INTEGERS, st.lists(st.integers(-9, 999).map(str)).map(lambda v: "{" + ",".join(v) + "}")),
    (TEXTS, st.sampled_from(['{a,"b,c",NULL}', "{}", "{{a},{b}}", "[2:3]={x,y}"])),
]


def _zoned(text: str) -> str:
    return text[:-3] + "+00 BC" if text.endswith(" BC") else text + "+00"


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[ColumnType], list[list[bytes | None]]]:
    """A table's types, the first of which is the key's, and some rows."""
    key = draw(st.sampled_from([case for case in CASES if not case[0].has_escape]))
    others = draw(st.lists(st.sampled_from(CASES), max_size=6))
    fields = [key[1], *(values | st.none() for _, values in others)]
    rows = draw(st.lists(st.tuples(*fields), min_size=1, max_size=12))
    encoded = [[None if text is None else str(text).encode() for text in row] for row in rows]
    return [key[0], *(kind for kind, _ in others)], encoded


@given(tables(), st.lists(st.booleans(), min_size=6, max_size=6))
@example(([INTEGER, TEXT], [[b"1", None], [b"2", b""], [b"3", b"x" * 300]]), [False] * 6)
@example(([INTEGER, TEXT], [[b"1", None], [b"2", b""], [b"3", b"x" * 300]]), [True] * 6)
def test_a_batch_has_the_bytes_of_its_rows(
    table: tuple[list[ColumnType], list[list[bytes | None]]], with_default: list[bool]
) -> None:
    kinds, rows = table
    relation = make_relation({f"c{place}": kind for place, kind in enumerate(kinds)}, key=("c0",))
    # What the default is counts for nothing here, only that there is one.
    defaults = {f"c{place}": "0" for place, has in enumerate(with_default, 1) if has}
    relation = relation.with_defaults(defaults)
    law, batch = make_codec(relation), BatchCodec(relation, IDS)
    columns = fields_of(rows, len(kinds))
    assert batch.encode_keys(columns) == [
        law.encode_key(key_of(relation.key_indexes, row)) for row in rows
    ]
    assert batch.encode_values(columns) == [law.encode_value(row) for row in rows]


@pytest.mark.parametrize("kind", [kind for kind, _ in CASES if kind.kind.value != "string"])
@pytest.mark.parametrize("text", [b"", b" ", b"x", b"1x", b"2000-13-01", b"2000-01-01 00:00:00+01"])
def test_what_the_row_encoder_refuses_the_batch_refuses(kind: ColumnType, text: bytes) -> None:
    relation = make_relation({"id": INTEGER, "value": kind})
    rows = [[b"1", b""], [b"2", text]][1:]
    assert _outcome(lambda: make_codec(relation).encode_value(rows[0])) == _outcome(
        lambda: BatchCodec(relation, IDS).encode_values(fields_of(rows, 2))[0]
    )


def _outcome(encode: Callable[[], bytes]) -> bytes | str:
    try:
        return encode()
    except EncodeError:
        return "refused"


def test_a_null_in_the_key_is_refused() -> None:
    with pytest.raises(EncodeError, match="null in the primary key"):
        BatchCodec(make_relation(), IDS).encode_keys(fields_of([[None, b"x"]], 2))


@given(st.lists(st.lists(st.binary(max_size=20), min_size=3, max_size=3), min_size=1))
def test_pooled_strings_are_joined_row_by_row(rows: list[list[bytes]]) -> None:
    pool = Pool()
    numbers = [pool.add_all([row[place] for row in rows]) for place in range(3)]
    same = pool.add_all([b"|"])
    joined = pool.joined([numbers[2], same, numbers[0], numbers[1]], len(rows))
    assert joined == [row[2] + b"|" + row[0] + row[1] for row in rows]


def _insert(values: Sequence[bytes | str | None]) -> bytes:
    out = b"I" + (7).to_bytes(4, "big") + b"N" + len(values).to_bytes(2, "big")
    for value in values:
        if value is None:
            out += b"n"
        elif value == "unchanged":
            out += b"u"
        else:
            assert isinstance(value, bytes)
            out += b"t" + len(value).to_bytes(4, "big") + value
    return out


VALUES = st.none() | st.binary(max_size=10)


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=10))
def test_tuples_are_found_where_the_decoder_finds_them(
    rows: list[tuple[bytes | None, ...]],
) -> None:
    payloads = [_insert(row) for row in rows]
    frames = Frames(payloads)
    columns, ends, toasted = frames.tuples(np.arange(len(rows)), 3)
    found = list(zip(*(column.texts() for column in columns), strict=True))
    decoded = [decode(payload) for payload in payloads]
    assert found == [each.new for each in decoded if isinstance(each, InsertMessage)]
    assert (ends == frames.end).all()
    assert not toasted.any()


def test_a_value_that_was_left_out_is_told() -> None:
    frames = Frames([_insert([b"1", "unchanged"]), _insert([b"2", b"x"])])
    _, _, toasted = frames.tuples(np.arange(2), 2)
    assert toasted.tolist() == [True, False]


@given(st.integers(0, 100), st.integers(0, 255))
def test_a_broken_row_is_a_protocol_error_or_a_row(cut: int, other: int) -> None:
    whole = _insert([b"12345", None, b"abcdef"])
    for raw in (whole[: 8 + cut % (len(whole) - 8)], _changed(whole, cut, other)):
        frames = Frames([raw])
        try:
            columns, ends, _ = frames.tuples(np.arange(1), 3)
        except ProtocolError:
            continue
        assert ends[0] <= len(raw)
        assert all(isinstance(column, Fields) for column in columns)


def _changed(raw: bytes, place: int, other: int) -> bytes:
    at = 6 + place % (len(raw) - 6)
    return raw[:at] + bytes([other]) + raw[at + 1 :]
