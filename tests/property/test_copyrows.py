"""The copier in C writes what PostgreSQL's binary format says of the same rows."""

import struct
from array import array
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.rows.codec import RowCodec, frame
from changelog.native import RowCopier
from changelog.native.loads import AvroField, AvroKind, AvroRows, CellForm, CopyCell
from tests.support.builders import BIGINT, INTEGER, TEXT, decimal_type, make_relation
from tests.support.copy_tuples import tuples_of
from tests.support.native_ways import needs_c
from tests.support.record_batches import batch_of

pytestmark = needs_c

RELATION = make_relation(
    {"id": INTEGER, "big": BIGINT, "amount": decimal_type(38, 7), "name": TEXT}
)
CODEC = RowCodec(RELATION, key_schema_id=1, value_schema_id=2)
FIELDS = (
    AvroField(AvroKind.INT, (), 2),
    AvroField(AvroKind.LONG, ("null", "value"), 0),
    AvroField(AvroKind.DECIMAL, ("null", "value", "text"), 3),
    AvroField(AvroKind.STRING, ("null", "value"), 1),
)
CELLS = (
    CopyCell(CellForm.INT8),
    CopyCell(CellForm.TEXT),
    CopyCell(CellForm.INT4),
    CopyCell(CellForm.NUMERIC, scale=7),
)
COPIER = RowCopier(AvroRows(frame(2), FIELDS), None, CELLS)

decimals = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-7"))
rows = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | decimals | st.just(Decimal("NaN")),
    st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8),
)


def texts(row):
    return [None if each is None else _text(each) for each in row]


def _text(value):
    return f"{value:f}".encode() if isinstance(value, Decimal) else str(value).encode()


def numeric(raw):
    """Read a numeric as `numeric_recv` does."""
    count, weight, sign, scale = struct.unpack_from(">hhHh", raw)
    if sign == 0xC000:
        return "NaN"
    digits = struct.unpack_from(f">{count}h", raw, 8)
    assert len(raw) == 8 + 2 * count
    assert all(0 <= each < 10_000 for each in digits)
    total = sum(each * 10_000 ** (count - 1 - n) for n, each in enumerate(digits))
    # Exact, whatever the context of decimal is: an integer and where its point stands.
    unscaled, point = total, 4 * (count - 1 - weight)
    return (-unscaled if sign else unscaled), point, scale


@given(st.lists(rows, max_size=5))
def test_each_field_is_what_the_row_said(given_rows):
    values = [CODEC.encode_value(texts(row)) for row in given_rows]
    raw = COPIER.copied(batch_of(values), [])
    assert raw is not None
    found = tuples_of(raw)
    assert len(found) == len(given_rows)
    for fields, (number, big, amount, name) in zip(found, given_rows, strict=True):
        assert fields[0] == (None if big is None else struct.pack(">q", big))
        assert fields[1] == (None if name is None else name.encode())
        assert fields[2] == struct.pack(">i", number)
        if amount is None:
            assert fields[3] is None
        elif amount.is_nan():
            assert numeric(fields[3]) == "NaN"
        else:
            unscaled, point, scale = numeric(fields[3])
            assert scale == 7
            sign, digits, _ = amount.as_tuple()
            wanted = int("".join(map(str, digits))) * (-1 if sign else 1)
            assert unscaled * 10**7 == wanted * 10**point


@given(st.lists(rows, min_size=1, max_size=3), st.data())
def test_what_is_cut_or_has_more_is_left_to_the_caller(given_rows, data):
    values = [CODEC.encode_value(texts(row)) for row in given_rows]
    place = data.draw(st.integers(0, len(values) - 1))
    cut = data.draw(st.integers(0, len(values[place]) - 1))
    odd = [*values[:place], values[place][:cut], *values[place + 1 :]]
    assert COPIER.copied(batch_of(odd), []) is None
    longer = [*values[:place], values[place] + b"\0", *values[place + 1 :]]
    assert COPIER.copied(batch_of(longer), []) is None


NUMBERED = RowCopier(AvroRows(frame(2), FIELDS), None, (*CELLS, CopyCell(CellForm.INT8, numbers=0)))


@given(st.lists(rows, min_size=1, max_size=6), st.data())
def test_rows_that_are_chosen_are_as_they_are_alone(given_rows, data):
    values = [CODEC.encode_value(texts(row)) for row in given_rows]
    chosen = data.draw(st.lists(st.sampled_from(range(len(values))), max_size=4))
    first = data.draw(st.integers(0, min(chosen, default=0)))
    records = batch_of([b"another", *values])[1 + first :]
    numbers = array("q", range(100 + first, 100 + len(values)))
    found = NUMBERED.copied(records, [numbers], array("q", [n - first for n in chosen]))
    alone = [tuples_of(COPIER.copied(batch_of([values[n]]), []) or b"")[0] for n in chosen]
    wanted = [[*row, struct.pack(">q", 100 + n)] for row, n in zip(alone, chosen, strict=True)]
    assert found is not None
    assert [list(row) for row in tuples_of(found)] == wanted


@given(st.binary(max_size=60))
def test_no_bytes_do_harm(raw):
    found = COPIER.copied(batch_of([frame(2) + raw]), [])
    assert found is None or len(tuples_of(found)) == 1
