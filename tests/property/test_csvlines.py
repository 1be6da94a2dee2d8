"""Lines of CSV and texts become in C the lines that Python writes of them, or are left to it."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.load_rows import csv_encoder, lines_of, text_encoder
from tests.support.native_ways import needs_c
from tests.support.record_batches import batch_of

pytestmark = needs_c

cells = st.sampled_from(
    ["", '""', "1", "12.34", "12.345", "12.300", "1e2", "-0", "NaN", "2026-01-31T12:00:00.1234567Z",
     "2026-01-31 12:00:00.120000000", ".5", "a", '"a"', '"a ""b"" c"', '""""', '"', 'a"b"', '"a"b',
     '"a,b"', '"a\nb"', "a\nb", "a\rb", "a\tb", "\\N", "\\.", "ö", '"ö\\"', " ",
     "longer than eight",
     '"longer than ""eight"" \\ letters"', "tabs\tand\\slashes in a long text", "\x1f\x7f\x00"]
) | st.text(st.characters(codec="utf-8"), max_size=4)  # fmt: skip
lines = st.lists(cells, min_size=8, max_size=10).map(",".join)


@given(st.lists(lines, min_size=1, max_size=4))
@example([",".join(["1"] * 9), ",".join(["1"] * 9) + ",", "", ",,,,,,,,", '"' * 9])
def test_lines_are_those_of_python(values):
    raw = [each.encode() for each in values]
    assert lines_of(csv_encoder(), raw) == lines_of(csv_encoder(with_c=False), raw)


@given(st.lists(cells, min_size=1, max_size=4), st.binary(max_size=2), st.data())
def test_any_bytes_are_what_python_takes_them_for(some, more, data):
    line = ";".join(some).encode()
    place = data.draw(st.integers(0, len(line)))
    odd = [line, line[:place] + more + line[place:]]
    wanted = {"fields": ("a", "name", "amount"), "columns": "name,amount,at=value.a,id=key"}
    made = [csv_encoder(**wanted, delimiter=b";", with_c=with_c) for with_c in (True, False)]
    keys = [None, b"7\\"]
    assert lines_of(made[0], odd, keys) == lines_of(made[1], odd, keys)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=4), st.sampled_from([None, b"", b"k"]))
@example([b"", b'"', b"a,b\n", b"1.234", b"longer than eight\\bytes"], b"a\tb")
def test_texts_and_keys_are_those_of_python(values, key):
    for columns in ("name=value,tags=key", "amount=value,name=key", "at=key,raw=value,name=value"):
        made = [text_encoder(columns, with_c=with_c) for with_c in (True, False)]
        keys = [key] * len(values)
        assert lines_of(made[0], values, keys) == lines_of(made[1], values, keys)


@given(st.lists(lines, min_size=1, max_size=5), st.data())
def test_rows_that_are_replaced_have_the_numbers_of_their_records(values, data):
    good = [
        each.encode()
        for each in values
        if not isinstance(lines_of(csv_encoder(with_c=False), [each.encode()])[0], str)
    ]
    records = batch_of([b"another", *good])[1:]
    chosen = array("q", data.draw(st.permutations(range(len(good)))))
    made, slow = csv_encoder(keys=("id",)), csv_encoder(keys=("id",), with_c=False)
    wanted = slow._texts(records, chosen, is_gone=False).content
    assert made._texts(records, chosen, is_gone=False).content == wanted


def test_what_is_plain_is_written_in_c():
    value = b'1,"a ""b""\n",\\,1.25,2026-01-31T12:00:00.5Z,,"",0.5,{a}'
    records, chosen = batch_of([value], [b"k"]), array("q", [0])
    done, content = csv_encoder(keys=("id",))._lines.lines(records, chosen, 0)
    assert done == 1
    assert content == b'1\ta "b"\\n\t\\\\\t1.25\t2026-01-31T12:00:00.5Z\t\\N\t\t0.5\t{a}\t0\tf\n'
    done, content = text_encoder("id=key,name=value")._lines.lines(records, chosen, 0)
    assert (done, content) == (
        1,
        b"k\t" + value.replace(b"\\", rb"\\").replace(b"\n", rb"\n") + b"\n",
    )


@pytest.mark.parametrize(
    "made",
    [
        csv_encoder(columns="id,name=key.name,at=timestamp"),
        csv_encoder(columns="id,name=value"),
        csv_encoder(fields=("id",), columns="id,name"),
        csv_encoder(delimiter=b"::"),
        text_encoder("id=offset,name=value"),
    ],
)
def test_what_c_does_not_know_is_left_to_python(made):
    assert made._lines is None
