"""Objects of JSON become in C the lines that Python writes of them, or are left to it."""

import json
from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from changelog.load.encode import UnfitRecordError
from tests.support.load_rows import TYPES, encoder, lines_of
from tests.support.native_ways import needs_c
from tests.support.record_batches import batch_of

pytestmark = needs_c

letters = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["\\N", "\\.", "a\tb", "line\nfeed", '"', "e", "2026-01-31T12:00:00.1234567Z", "1.50", "1.500",
     "2026-01-31 12:00:00.12", "1e3", "/", "\x7f", "ö", "𝄞", "\x00", "\x1f", "true", "NaN"]
)  # fmt: skip
numbers = st.sampled_from(
    ["0", "-0", "-0.0", "1", "12.34", "12.345", "12.300", "1e2", "1E-7", "123456789012345678901",
     "-1234567890123456789", "01", "1.", ".5", "-", "+1", "NaN", "Infinity", "1e", "1e+", "9.99"]
) | st.integers(-(2**70), 2**70).map(str)  # fmt: skip
texts = st.one_of(
    letters.map(json.dumps),
    letters.map(lambda each: json.dumps(each, ensure_ascii=False)),
    st.sampled_from(
        [r'"\ud834\udd1e"', r'"\ud834"', r'"\udd1e"', r'"\u0000"', r'"\u000a"', r'"\/"', r'"\x"',
         r'"\u12"', r'"\b\f\r\t"', '"a', '"\t"', r'"\u005c"', '""']
    ),
)  # fmt: skip
blanks = st.sampled_from(["", "", "", " ", "\n\t\r "])
words = st.sampled_from(["null", "true", "false", "nul", "True"])


@st.composite
def pairs(draw, names, values):
    members = [
        f"{draw(blanks)}{draw(names)}{draw(blanks)}:{draw(blanks)}{draw(values)}{draw(blanks)}"
        for _ in range(draw(st.integers(0, 9)))
    ]
    return "{" + (",".join(members) or draw(blanks)) + "}"


def lists(values):
    return st.lists(values, max_size=3).map(lambda each: "[" + ", ".join(each) + "]")


plain = st.one_of(words, numbers, texts)
inner = st.sampled_from(['"a"', '"b"', r'"\u0061"', '"ö"', r'"\n"']) | texts
nested = st.recursive(plain, lambda of: lists(of) | pairs(inner, of), max_leaves=6)
named = st.sampled_from([*(json.dumps(name, ensure_ascii=False) for name in TYPES), '"other"'])
FITTING = {
    "id": st.integers(-(2**63), 2**63 - 1).map(str),
    "name": texts,
    "attrs": nested,
    "amount": st.sampled_from(["1.25", '"7.5"', "3", "null"]),
    "at": st.sampled_from(['"2026-01-31T12:00:00Z"', '"2026-01-31 12:00:00.123456+01"', "null"]),
    "ok": words,
    "größe": numbers,
}


@st.composite
def fitting(draw):
    names = draw(st.lists(st.sampled_from(list(FITTING)), unique=True))
    return "{" + ",".join(f'"{each}": {draw(FITTING[each])}' for each in names) + "}"


objects = fitting() | pairs(named, nested) | nested | st.text(max_size=5)


@given(st.lists(objects, min_size=1, max_size=4), st.booleans())
@example(['{"attrs":{"a":{"b":1,"b":2}}}'], True)
@example(['{"name":"a","name":"b"}', '{"name":"a"} x', '{"name":"a",}', "\ufeff{}"], True)
@example(['{"other":1,"other":2}', '{"other":"\\ud800","name":"x"}'], False)
@example(['{"attrs":"{\\"a\\\\n\\":1}"}', '{"attrs":{"a":"\\n\\\\\\""}}'], True)
def test_lines_are_those_of_python(values, all_known):
    raw = [each.encode() for each in values]
    wanted = lines_of(encoder(all_known=all_known, with_c=False), raw)
    assert lines_of(encoder(all_known=all_known), raw) == wanted


@given(objects, st.binary(max_size=3), st.data())
def test_bytes_that_are_no_json_are_what_python_takes_them_for(value, more, data):
    raw = value.encode()
    place = data.draw(st.integers(0, len(raw)))
    odd = raw[:place] + more + raw[place + data.draw(st.integers(0, 2)) :]
    assert lines_of(encoder(), [odd]) == lines_of(encoder(with_c=False), [odd])


@given(st.lists(fitting(), min_size=1, max_size=5), st.data())
def test_rows_that_are_replaced_have_the_numbers_of_their_records(values, data):
    records = batch_of([b"another", *(each.encode() for each in values)])[1:]
    chosen = array("q", data.draw(st.permutations(range(len(values)))))
    made, slow = encoder(keys=("id",)), encoder(keys=("id",), with_c=False)
    try:
        wanted = slow._texts(records, chosen, is_gone=False).content
    except UnfitRecordError:
        return
    assert made._texts(records, chosen, is_gone=False).content == wanted
    done, _ = encoder(keys=("id",))._lines.lines(records, chosen, 0)
    assert 0 <= done <= len(values)


def test_what_is_plain_is_written_in_c():
    value = (
        b'{"id": 12, "name": "a\\tb \xc3\xb6\\u00e9\\ud834\\udd1e",'
        b' "attrs": {"a": [1, 2.50, "\\n"]},'
        b' "amount": 1.25, "at": "2026-01-31T12:00:00.123456Z", "ok": true, "raw": null,'
        b' "gr\xc3\xb6\xc3\x9fe": -1e-7, "tags": "{a,b}"}'
    )
    done, content = encoder(keys=("id",))._lines.lines(batch_of([value]), array("q", [0]), 0)
    assert done == 1
    assert content.decode() == (
        '12\ta\\tb öé𝄞\t{"a":[1,2.50,"\\\\n"]}\t1.25\t2026-01-31T12:00:00.123456Z\ttrue\t\\N\t'
        "-1e-7\t{a,b}\t0\tf\n"
    )


def test_a_piece_goes_on_behind_an_object_that_is_left_to_python():
    values = [b'{"id":%d,"tags":["x"]}' % n if n % 3 else b'{"id":%d}' % n for n in range(10)]
    made = encoder()
    found = b"".join(chunk.content for chunk in made.chunks(batch_of(values)))
    assert found == b"".join(lines_of(encoder(with_c=False), values))
