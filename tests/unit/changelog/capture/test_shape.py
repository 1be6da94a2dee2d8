"""Columns left out and masked: the same bytes row by row and many at a time."""

from __future__ import annotations

import hashlib
import hmac
import pickle

import pytest

from changelog.capture.rows.rules import CaptureRules
from changelog.capture.rows.shape import REDACTED, batch_codec, row_codec, whole
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.codec import RowCodec, SchemaIds
from changelog.contract.rows.relation import UNCHANGED, Column, Relation, TableName
from changelog.contract.rows.types import ColumnType, Kind
from changelog.sections import CaptureSettings
from tests.support.batches import known, line_of, lines_encoded

KEY = "a key of the tests, long enough"
INT, TEXT = ColumnType("integer", Kind.INT), ColumnType("text", Kind.STRING)
TABLE = Relation(
    1,
    TableName("public", "people"),
    (
        Column("ssn", TEXT),
        Column("id", INT),
        Column("email", TEXT),
        Column("born", INT),
        Column("note", TEXT),
    ),
    ("id",),
)
IDS = SchemaIds(7, 8)


def rules(**more):
    more.setdefault("mask_key", KEY)
    return CaptureRules(CaptureSettings(**more))


def hashed(text: bytes) -> bytes:
    return hmac.new(KEY.encode(), text, hashlib.sha256).hexdigest().encode()


NARROW = {
    "drop_columns": ("people.ssn",),
    "mask": {"people.email": "hash", "public.people.born": "redact", "*.*.id": "hash"},
}


def test_a_row_is_written_without_dropped_columns_and_with_masked_values():
    shape = rules(**NARROW).shape(TABLE)
    assert [c.name for c in shape.logged.columns] == ["id", "email", "born", "note"]
    assert [c.type for c in shape.logged.columns] == [TEXT, TEXT, TEXT, TEXT]
    row = (b"123", b"5", b"a@b", b"1990", b"x")
    assert list(shape.row(row)) == [hashed(b"5"), hashed(b"a@b"), REDACTED, b"x"]
    assert shape.key((b"5",)) == (hashed(b"5"),)


def test_null_and_unfetched_values_stay_what_they_are():
    shape = rules(**NARROW).shape(TABLE)
    row = (None, b"5", None, None, UNCHANGED)
    assert list(shape.row(row)) == [hashed(b"5"), None, None, UNCHANGED]


def encoded(shape, rows):
    codec = batch_codec(shape, IDS)
    assert codec is not None
    found = known(lines_encoded(codec, list(map(line_of, rows))))
    return [(record.key, record.value) for record in found]


@pytest.mark.parametrize(
    "more", [{}, NARROW, {"drop_columns": ("people.note", "people.e*")}], ids=str
)
def test_many_rows_at_a_time_give_the_bytes_of_one_by_one(more):
    shape = rules(**more).shape(TABLE)
    rows = [
        (b"s%d" % n, b"%d" % n, None if n % 3 else b"m%d" % n, b"%d" % (n * 7), b"")
        for n in range(50)
    ]
    one = row_codec(shape, IDS)
    expected = [(one.encode_key((row[1],)), one.encode_value(row)) for row in rows]
    assert encoded(shape, rows) == expected
    # The snapshot reads no more columns than are written.
    needed = shape.only_needed()
    assert encoded(needed, [[row[place] for place in shape.places] for row in rows]) == expected
    assert pickle.loads(pickle.dumps(needed)) == needed  # noqa: S301 - to a worker, and back


def test_a_whole_table_has_the_plain_codecs():
    assert whole(TABLE).is_whole
    assert type(row_codec(whole(TABLE), IDS)) is RowCodec
    assert rules().shape(TABLE) == whole(TABLE)


def test_the_key_is_in_no_repr():
    assert KEY not in repr(rules(**NARROW).shape(TABLE))
    assert KEY not in repr(rules(**NARROW).scope(TABLE))


def test_another_key_is_another_scope():
    one, other = (rules(**NARROW, mask_key=key).scope(TABLE) for key in (KEY, "k" * 16))
    assert one.mask_key != other.mask_key
    assert rules(mask={"people.email": "redact"}).scope(TABLE).mask_key == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"drop_columns": ("people.id",)}, "in the primary key, so it must stay"),
        ({"mask": {"people.id": "redact"}}, "only a hash keeps keys apart"),
        ({"drop_columns": ("people.sssn",)}, 'no captured table has a column "people.sssn"'),
        ({"mask": {"persons.ssn": "redact"}}, 'no captured table has a column "persons.ssn"'),
        ({"where": {"persons": "true"}}, 'no captured table is called "persons"'),
        ({"mask": {"people.ssn": "rot13"}}, "neither of hash, redact"),
        ({"mask": {"people.ssn": "hash"}, "mask_key": "short"}, "at least 16 bytes"),
        ({"operations": ("insert", "upsert")}, "cannot be upsert"),
        ({"operations": ()}, "cannot be empty"),
        ({"drop_columns": ("ssn",)}, "not a pattern of columns"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings, says):
    with pytest.raises(ConfigurationError, match=says):
        rules(**settings).check([TABLE])


def test_a_pattern_with_wildcards_may_wait_for_its_column():
    rules(drop_columns=("people.secret_*", "other_*.x")).check([TABLE])


def test_conditions_of_several_patterns_hold_together():
    found = rules(where={"people": "id > 1", "public.*": "id < 9 OR true"})
    assert found.where(TABLE.name) == "(id > 1) AND (id < 9 OR true)"
    assert found.where(TableName("public", "other")) == "id < 9 OR true"
    assert found.where(TableName("s", "people")) == ""
