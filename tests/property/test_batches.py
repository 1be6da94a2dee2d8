"""Records of a batch are what was put in, and lie in the same groups, in C and in Python."""

from hypothesis import given
from hypothesis import strategies as st

from changelog.native.loads import MOST_GROUPS, BatchRecord
from tests.support.native_ways import WAYS, on

TOPICS = ("one", "other")
few = st.sampled_from([b"", b"\0", b"\0\0\0\0\1", b"\0\0\0\0\1x", b"\0\0\0\0\2y", b"{}"])
texts = st.none() | few | st.binary(max_size=12)
names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4)
records = st.lists(
    st.builds(
        BatchRecord,
        st.sampled_from(TOPICS),
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**53),
        texts,
        texts,
        st.lists(st.tuples(names, st.none() | st.binary(max_size=4)), max_size=3).map(tuple),
    ),
    max_size=200,
)


def batch_on(way, given_records):
    batch = on(way, "Batch")(TOPICS)
    for each in given_records:
        batch.add(each)
    return batch


def numbers(of):
    return list(memoryview(of).cast("B").cast("q"))


@given(records, st.integers(0, 200), st.integers(0, 200))
def test_records_and_ranges_are_what_was_put_in(given_records, first, end):
    for way in WAYS:
        batch = batch_on(way, given_records)
        found = batch.all()
        assert (list(found), len(batch)) == (given_records, len(given_records))
        part = found[first:end]
        assert (list(part), len(part)) == (given_records[first:end], len(given_records[first:end]))
        assert [part.value(n) for n in range(len(part))] == [each.value for each in part]
        for name in ("partition", "offset", "timestamp_ms"):
            wanted = [getattr(each, name) for each in given_records[first:end]]
            assert numbers(part.column(name)) == wanted
        assert list(part[1:][:2]) == given_records[first:end][1:][:2]
        batch.clear()
        assert (len(batch), batch.size_bytes, list(batch.all())) == (0, 0, [])


@given(records, st.booleans(), st.booleans(), st.integers(0, 5))
def test_groups_hold_each_record_once_and_are_the_same_on_both_ways(
    given_records, by_value, by_key, first
):
    found = []
    for way in WAYS:
        batch = batch_on(way, given_records)
        part = batch.all()[first:]
        groups = part.groups(by_value=by_value, by_key=by_key)
        found.append((batch.size_bytes, groups))
        rows = sorted([*groups.gone, *(n for each in groups.alike for n in each.rows)])
        assert rows == list(range(len(part)))
        assert all(part[n].value is None for n in groups.gone)
        for each in groups.alike:
            frames = {
                (part[n].value[:5] * by_value, (part[n].key or b"")[:5] * by_key) for n in each.rows
            }
            assert each.is_other or frames == {(each.value, each.key)}
            assert list(each.rows) == sorted(each.rows)
    assert found[0] == found[-1]


def test_records_of_more_frames_than_there_are_groups_lie_in_the_last():
    values = [bytes([n]) for n in range(MOST_GROUPS + 20)] * 2
    given_records = [BatchRecord("one", 0, n, 0, None, each, ()) for n, each in enumerate(values)]
    for way in WAYS:
        groups = batch_on(way, given_records).all().groups(by_value=True, by_key=False)
        *whole, other = groups.alike
        assert len(whole) == MOST_GROUPS - 1
        assert [each.is_other for each in whole] == [False] * len(whole)
        assert (other.is_other, len(other.rows)) == (True, 2 * 21)
