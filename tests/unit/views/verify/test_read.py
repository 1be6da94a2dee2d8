"""Records by column are the records one by one; the last one before an end ends its partition."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import CorruptRecordError
from tests.property.test_last import Message as Record
from views.verify.log.read import RAW_SCHEMA, _all_inside, _Keys, _Rows, _wanted, shared_out
from views.verify.values.faults import SetApart

FRAME = b"\0\0\0\0\7"


class Message(Record):
    """A record of partition 3."""

    def partition(self):
        return 3

    def topic(self):
        return "t"

    def error(self):
        return None


positions = st.binary(min_size=20, max_size=20)
sound = st.builds(lambda position: [("position", position), ("op", b"u")], position=positions)
odd = st.sampled_from(
    [
        None,
        [],
        [("position", None)],
        [("position", b"p" * 19)],
        [("position", b"p" * 21)],
        [("op", b"u"), ("position", b"p" * 20)],
        [("position", b"short"), ("position", b"q" * 20)],
        [("op", b"u")],
    ]
)
keys = st.one_of(st.binary(max_size=4).map(lambda raw: FRAME + raw), st.sampled_from([None, b"{}"]))
values = st.none() | st.binary(max_size=5)


@given(
    st.lists(st.tuples(keys, values, sound | odd), min_size=1, max_size=6),
    st.sampled_from([_Keys(False, 7), _Keys(False, None), _Keys(True, None)]),
)
def test_records_by_column_are_the_records_one_by_one(records, how):
    messages: list[Any] = [Message(at, *record) for at, record in enumerate(records)]
    apart = SetApart()
    each = [dict(zip(RAW_SCHEMA.names, _Rows(how, apart).row(m), strict=True)) for m in messages]
    assert _Rows(how, apart).table(messages).to_pylist() == each
    faulty = [at for at in range(len(messages)) if apart.holds(3, at)]
    if not faulty:
        assert _Rows(how, None).table(messages).to_pylist() == each
        return
    with pytest.raises(CorruptRecordError, match=f"partition 3, offset {faulty[0]}:"):
        _Rows(how, None).table(messages)


@pytest.mark.parametrize(("end", "inside"), [(7, True), (6, False), (5, False)])
def test_the_last_record_before_an_end_is_looked_at(end, inside):
    polled: list[Any] = [Message(at, FRAME, b"v", None) for at in (2, 5)]
    open_ = {3}
    assert _all_inside(polled, {3: end}) is inside
    assert [each.offset() for each in _wanted(polled, "t", {3: end}, open_)] == (
        [2, 5] if end > 5 else [2]
    )
    assert open_ == ({3} if inside else set())


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=5),
    st.integers(2, 4),
)
def test_each_offset_is_in_one_share(spans, helpers):
    starts = [start for start, _ in spans]
    ends = [start + span for start, span in spans]
    with patch("views.verify.log.read.MANY_OFFSETS", 1):
        shares = shared_out(starts, ends, helpers)
    found = sorted(
        (part, offset)
        for share in shares
        for part, (first, end) in share.items()
        for offset in range(first, end)
    )
    wanted = [
        (part, offset)
        for part, (first, end) in enumerate(zip(starts, ends, strict=True))
        for offset in range(first, end)
    ]
    assert found == wanted


def test_few_records_and_one_processor_get_no_shares():
    assert shared_out([0], [499_999], 2) == shared_out([0], [10**9], 1) == []
    assert len(shared_out([0, 0], [10**6, 10**6], 2)) == 4
