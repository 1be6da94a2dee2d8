"""`views.cases.differences`: rows against the rows that a case expects."""

from hypothesis import given
from hypothesis import strategies as st

from views.cases.differences import differences, same

ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 9), "v": st.none() | st.integers(0, 3)}),
    unique_by=lambda row: row["id"],
)


def kinds(found: list, expected: list, *, whole: bool = True) -> list[tuple[str, str]]:
    told = differences(found, expected, ["id"], whole=whole)
    return [(each.kind, each.column) for each in told]


@given(ROWS, st.randoms())
def test_the_same_rows_in_any_order_do_not_differ(rows: list, random: object) -> None:
    other = list(rows)
    random.shuffle(other)  # type: ignore[attr-defined]
    assert kinds(rows, other) == []


@given(ROWS, ROWS)
def test_rows_that_differ_are_told(one: list, two: list) -> None:
    by_id = {row["id"]: row for row in one}
    assert (kinds(one, two) == []) == (by_id == {row["id"]: row for row in two})


def test_each_difference_has_its_kind() -> None:
    found = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert kinds(found, [{"id": 1, "v": 5}, {"id": 3, "v": 1}]) == [
        ("different", "v"),
        ("missing", ""),
        ("unexpected", ""),
    ]


def test_of_some_rows_only_what_is_given_counts() -> None:
    found = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert kinds(found, [{"v": 2}], whole=False) == []
    assert kinds(found, [{"id": 1, "v": 2}], whole=False) == [("different", "v")]
    assert kinds(found, [{"v": 3}], whole=False) == [("missing", "")]
    assert kinds([{"id": 1, "v": 1}], [{"v": 1}, {"v": 1}], whole=False) == [("missing", "")]


def test_rows_without_a_key_of_their_own_are_told_even_if_they_are_expected() -> None:
    twice = [{"id": 1, "v": 1}, {"id": 1, "v": 1}]
    assert kinds(twice, twice) == [("twice", "")]
    assert kinds([{"id": None, "v": 1}], [{"id": None, "v": 1}]) == [("null", "")]


def test_values_are_the_same_by_type_and_floats_nearly() -> None:
    assert same(0.1 + 0.2, 0.3)
    assert same(float("nan"), float("nan"))
    assert same({"a": [0.3]}, {"a": [0.1 + 0.2]})
    assert not same(1, True)
    assert not same(None, 0)
    assert not same([1], [1, 2])
