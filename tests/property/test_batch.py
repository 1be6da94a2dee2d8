"""The batch encoders give the bytes of the row encoders, whatever the rows hold."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from changelog.contract.base.errors import EncodeError
from changelog.contract.rows.codec import SchemaIds, key_of
from changelog.contract.rows.relation import UNCHANGED, Relation
from changelog.contract.rows.types import ColumnType, array_type
from changelog.native import BatchCodec, Run, Texts
from changelog.native.records import Mask, Selection
from changelog.source.snapshot.snapshot import parse_row
from changelog.source.stream.pgoutput import (
    DeleteMessage,
    InsertMessage,
    OldTuple,
    UpdateMessage,
    decode,
)
from tests.support.batches import (
    OPEN,
    SEQUENCE,
    STEP,
    known,
    line_of,
    lines_encoded,
    messages_encoded,
)
from tests.support.builders import (
    INTEGER,
    KEY_SCHEMA_ID,
    TEXT,
    VALUE_SCHEMA_ID,
    make_codec,
    make_relation,
)
from tests.support.examples import examples
from tests.support.native_ways import needs_c
from tests.support.source_texts import CASES

pytestmark = needs_c

IDS = SchemaIds(KEY_SCHEMA_ID, VALUE_SCHEMA_ID)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[ColumnType], list[list[bytes | None]]]:
    """A table's types, the first of which is the key's, and some rows."""
    key = draw(st.sampled_from([case for case in CASES if not case[0].has_escape]))
    others = draw(st.lists(st.sampled_from(CASES), max_size=6))
    fields = [key[1], *(values | st.none() for _, values in others)]
    rows = draw(st.lists(st.tuples(*fields), min_size=1, max_size=12))
    encoded = [[None if text is None else str(text).encode() for text in row] for row in rows]
    return [key[0], *(kind for kind, _ in others)], encoded


Table = tuple[list[ColumnType], list[list[bytes | None]]]


def _relation(kinds: Sequence[ColumnType], defaults: Sequence[bool] = ()) -> Relation:
    relation = make_relation({f"c{place}": kind for place, kind in enumerate(kinds)}, key=("c0",))
    # What the default is counts for nothing here, only that there is one.
    return relation.with_defaults({f"c{n}": "0" for n, has in enumerate(defaults, 1) if has})


@given(tables(), st.lists(st.booleans(), min_size=6, max_size=6))
@example(([INTEGER, TEXT], [[b"1", None], [b"2", b""], [b"3", b"x" * 300]]), [False] * 6)
@example(([INTEGER, TEXT], [[b"1", None], [b"2", b""], [b"3", b"x" * 300]]), [True] * 6)
def test_a_batch_has_the_bytes_of_its_rows(table: Table, with_default: list[bool]) -> None:
    kinds, rows = table
    relation = _relation(kinds, with_default)
    law, batch = make_codec(relation), BatchCodec(relation, IDS)
    expected = [
        (law.encode_key(key_of(relation.key_indexes, row)), law.encode_value(row)) for row in rows
    ]
    lines = list(known(lines_encoded(batch, list(map(line_of, rows)))))
    assert [each[:2] for each in lines] == expected
    assert [each[2:] for each in lines] == [(9, 100 + n, 8, b"r") for n in range(len(rows))]
    messages = list(known(messages_encoded(batch, [_insert(row) for row in rows])))
    assert [each[:2] for each in messages] == expected
    assert [each[2:] for each in messages] == [
        (OPEN.commit_lsn, SEQUENCE + STEP * n, OPEN.ts_us, b"c") for n in range(len(rows))
    ]


KINDS = [kind for kind, _ in CASES] + [array_type(kind, "x[]") for kind, _ in CASES]
HOSTILE = [
    b"", b" ", b"-", b"+1", b" 1", b"1 ", b"1_0", b"x", b"1x", b"-0", b"007", b"-007.50", b"0.",
    b".5", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"9" * 40, b"-" + b"9" * 40,
    b"1" + b"0" * 80, b"1e5", b"1E5", b"1e400", b"-1e400", b"1e-400", b"1e39", b"3.4028236e38",
    b"1e-46", b"7.038531e-26", b"0x1p3", b"nan", b"inf", b"NaN", b"-NaN", b"Infinity",
    b"-Infinity", b"+Infinity", b"infinity", b"-infinity", b"+infinity", b"xinfinity", b"1\0",
    b"1\0002", b"\0", b"2000-13-01", b"2000-02-30", b"1900-02-29", b"2000-02-29", b"0000-01-01",
    b"0001-01-01", b"0001-01-01 BC", b"0005-02-29 BC", b"0004-02-29 BC", b"4714-11-24 BC",
    b"5874897-12-31", b"05874-01-01", b"99999999-01-01", b"2000-1-1", b"2000-01-01x",
    b"2000-01-01 00:00:00+01", b"2000-01-01 24:00:00", b"2000-01-01 23:59:60",
    b"2000-01-01 00:00:00.", b"2000-01-01 00:00:00.1234567", b"2000-01-01 00:00:00.000001+00",
    b"2000-01-01T00:00:00", b"2000-01-01 00:00", b"2000-01-01 ", b"294247-01-10 04:00:54.775807",
    b"294276-12-31 23:59:59.999999", b"290309-01-01 00:00:00 BC", b"0044-03-15 12:00:00+00 BC",
    b"0044-03-15 12:00:00 BC+00", b"\\x", b"\\x0", b"\\x0g", b"\\xAB", b"\\x0 1", b"\\000", b"{",
    b"}", b"{}", b"{ }", b"{,}", b"{a", b"{1,2", b"{1,,2}", b"{1,2,}", b"{NULL}", b"{null}",
    b'{"NULL"}', b'{"a"b}', b'{"a', b'{"a\\', b'{"a\\"}', b'{"a\\""}', b"{{1},{2}}", b"{{",
    b"{1}}", b"{a{b}", b"[2:3]={1,2}", b"{1};{2}", b'{"2000-01-01 00:00:00",infinity}',
    b"{\\\\x00}",
]  # fmt: skip
SHAPED = st.text('0123456789-+.eE: infyNaBCt\\x{}",T;/_\0U', max_size=30).map(str.encode)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@given(texts=st.lists(SHAPED | st.binary(max_size=8), min_size=20, max_size=20))
@example(texts=HOSTILE)
@examples(10)
def test_what_a_batch_takes_the_row_encoder_gives_too(kind: ColumnType, texts: list[bytes]) -> None:
    """Whatever stands there: it is left to the row encoder, or encoded as by that."""
    relation = _relation([INTEGER, kind])
    law, batch = make_codec(relation), BatchCodec(relation, IDS)
    rows = [(b"1", text) for text in texts]
    taken = messages_encoded(batch, [_insert(row) for row in rows])
    for row, record in zip(rows, taken, strict=True):
        assert record is None or record.value == _outcome(partial(law.encode_value, row)), row
    lines = lines_encoded(batch, list(map(line_of, rows)))
    assert [each and each.value for each in lines] == [each and each.value for each in taken]


def _outcome(encode: Callable[[], bytes]) -> bytes | str:
    try:
        return encode()
    except EncodeError:
        return "refused"


@given(st.lists(st.lists(st.text("ab\\\tNn\rv1", max_size=4).map(str.encode), max_size=4)))
@example([[b"\\N"], [b"\\"], [b"\\N1", b"a\\"], [b"", b""], [b"\\\\", b"\\n"]])
def test_lines_are_read_as_one_by_one(lines: list[list[bytes]]) -> None:
    relation = _relation([TEXT, TEXT])
    law, batch = make_codec(relation), BatchCodec(relation, IDS)
    raw = [b"\t".join(fields) for fields in lines]
    for line, record in zip(raw, lines_encoded(batch, raw), strict=True):
        row = parse_row(line)
        fits = len(row) == 2 and row[0] is not None
        assert (record is not None) == fits, line
        if record is not None:
            assert record.value == law.encode_value(row)


def test_a_null_in_the_key_is_left_to_the_row_encoder() -> None:
    batch = BatchCodec(make_relation(), IDS)
    assert lines_encoded(batch, [b"\\N\tx"]) == [None]
    assert messages_encoded(batch, [_insert([None, b"x"])]) == [None]


def _tuple(letter: bytes, values: Sequence[Any]) -> bytes:
    out = letter + len(values).to_bytes(2, "big")
    for value in values:
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            out += b"t" + len(value).to_bytes(4, "big") + value
    return out


def _insert(values: Sequence[Any]) -> bytes:
    return b"I" + (7).to_bytes(4, "big") + _tuple(b"N", values)


def _update(new: Sequence[Any], old: Sequence[Any] = (), letter: bytes = b"") -> bytes:
    before = _tuple(letter, old) if letter else b""
    return b"U" + (7).to_bytes(4, "big") + before + _tuple(b"N", new)


def _delete(letter: bytes, old: Sequence[Any]) -> bytes:
    return b"D" + (7).to_bytes(4, "big") + _tuple(letter, old)


USUAL = {
    "insert": _insert([b"1", b"x", None]),
    "update": _update([b"1", b"x", None]),
    "update with the old row": _update([b"1", b"x", None], [b"1", b"y", b"z"], b"O"),
    "update with the same key": _update([b"1", b"x", None], [b"1", None, None], b"K"),
    "delete": _delete(b"K", [b"1", None, None]),
    "delete with the old row": _delete(b"O", [b"1", b"y", UNCHANGED]),
}
UNUSUAL = {
    "key change": _update([b"2", b"x", None], [b"1", None, None], b"K"),
    "key change with the old row": _update([b"2", b"x", None], [b"1", b"x", b"y"], b"O"),
    "without the old key": _update([b"1", b"x", None], [None, b"x", None], b"K"),
    "toast": _update([b"1", b"x", UNCHANGED]),
    "toast with the old row": _update([b"1", b"x", UNCHANGED], [b"1", b"x", b"y"], b"O"),
    "insert of an old row": b"I" + _insert([b"1", b"x", None])[1:5] + _tuple(b"K", [b"1"] * 3),
    "delete of a new row": b"D" + _insert([b"1", b"x", None])[1:],
    "delete without a key": _delete(b"K", [None, None, None]),
    "two values": _insert([b"1", b"x"]),
    "four values": _insert([b"1", b"x", None, None]),
    "a byte behind it": _insert([b"1", b"x", None]) + b"n",
    "no row behind the old one": _update([b"1"] * 3, [b"1"] * 3, b"O")[:-18],
}


@pytest.mark.parametrize("which", USUAL)
def test_a_usual_message_is_taken(which: str) -> None:
    relation = _relation([INTEGER, TEXT, TEXT])
    law = make_codec(relation)
    (record,) = known(messages_encoded(BatchCodec(relation, IDS), [USUAL[which]]))
    gone = which.startswith("delete")
    assert record.key == law.encode_key((b"1",))
    assert record.value == (None if gone else law.encode_value((b"1", b"x", None)))
    assert record.op == {"i": b"c", "u": b"u", "d": b"d"}[which[0]]


@pytest.mark.parametrize("which", UNUSUAL)
def test_an_unusual_message_is_given_back_among_usual_ones(which: str) -> None:
    relation = _relation([INTEGER, TEXT, TEXT])
    usual = USUAL["insert"]
    found = messages_encoded(
        BatchCodec(relation, IDS), [usual, UNUSUAL[which], usual, UNUSUAL[which]]
    )
    assert [record is None for record in found] == [False, True, False, True]


@given(st.data())
def test_a_broken_message_is_given_back_or_what_the_decoder_finds(data: st.DataObject) -> None:
    relation = _relation([TEXT, TEXT, TEXT])
    law, batch = make_codec(relation), BatchCodec(relation, IDS)
    whole = data.draw(st.sampled_from([*USUAL.values(), *UNUSUAL.values()]))
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(5, len(raw) - 1))] = data.draw(
            st.sampled_from(b"NKOntu\x00\x01\xff") | st.integers(0, 255)
        )
    payload = bytes(raw[: data.draw(st.integers(6, len(raw)) | st.just(len(raw)))])
    (record,) = messages_encoded(batch, [payload])
    if record is None:
        return
    match decode(payload):
        case InsertMessage(new=new) | UpdateMessage(new=new):
            assert record.key == law.encode_key(key_of(relation.key_indexes, new))
            assert record.value == law.encode_value(new)
        case DeleteMessage(old=OldTuple(values=old)):
            assert record.key == law.encode_key(key_of(relation.key_indexes, old))
            assert record.value is None
        case other:
            raise AssertionError(other)


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_any_bytes_are_a_run_or_none(payloads: list[bytes]) -> None:
    texts, run = Texts(payloads), Run()
    for before in (None, OPEN):
        if run.scan(texts, 0, len(texts), before=before, sequence=0, step=STEP):
            letters = b"".join(payload[:1] for payload in payloads)
            assert set(letters) <= set(b"IUDBC")
            assert len(run.xids) == letters.count(b"B")


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=300))
def test_a_masked_value_is_its_hash_or_the_constant(hash_key: bytes, text: bytes) -> None:
    relation = _relation([TEXT, TEXT, TEXT])
    selection = Selection(
        width=5,
        places=(4, 1, 2),
        masks=(Mask.HASH, Mask.NONE, Mask.CONSTANT),
        hash_key=hash_key,
        constant=b"***",
    )
    batch = BatchCodec(relation, IDS, selection)
    (record,) = known(messages_encoded(batch, [_insert([b"0", None, b"secret", b"3", text])]))
    row = (hmac.digest(hash_key, text, "sha256").hex().encode(), None, b"***")
    assert record.key == make_codec(relation).encode_key(row[:1])
    assert record.value == make_codec(relation).encode_value(row)
