"""`views.cases.values`: what people write, as the log would carry it."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import ViewError
from views.cases.values import CaseNumber, expected_of, type_named, value_of
from views.verify.values.types import parse_type

moment = datetime.fromisoformat


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("integer", 7, 7),
        ("int8", "7", 7),
        ("boolean", True, True),
        ("bool", "f", False),
        ("numeric(10,2)", CaseNumber("19.9"), Decimal("19.90")),
        ("numeric(10)", 3, Decimal(3)),
        ("numeric", CaseNumber("1.230"), "1.230"),
        ("double precision", CaseNumber("0.1"), 0.1),
        ("real", CaseNumber("0.5"), 0.5),
        ("text", "a", "a"),
        ("character(3)", "a", "a  "),
        ("varchar(3)", "abc", "abc"),
        ("jsonb", '{"a": 1}', '{"a": 1}'),
        ("bytea", "\\x00FF", b"\x00\xff"),
        ("date", date(2024, 2, 29), date(2024, 2, 29)),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "2024-02-29 10:00:00.5", moment("2024-02-29T10:00:00.5")),
        ("timestamptz", "2024-02-29 10:00:00+02", moment("2024-02-29T08:00")),
        ("timestamp with time zone", datetime(2024, 1, 1, tzinfo=UTC), moment("2024-01-01")),
        ("time", time(10, 30), "10:30:00"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("integer[]", [1, 2], [1, 2]),
        ("text[]", ['a"b', "NULL"], ['a"b', "NULL"]),
        ("text[]", "{a,NULL}", ["a", None]),
    ],
)
def test_a_value_is_what_the_log_would_carry(kind: str, written: object, value: object) -> None:
    assert value_of(type_named(kind), written) == value


@pytest.mark.parametrize(
    ("kind", "written", "words"),
    [
        ("integer", CaseNumber("1.5"), "another type"),
        ("integer", 1 << 31, "out of range"),
        ("smallint", 1 << 15, "out of range"),
        ("bigint", 1 << 63, "out of range"),
        ("integer", True, "another type"),
        ("boolean", 1, "another type"),
        ("text", 1, "texts stand in quotes"),
        ("numeric(10,2)", CaseNumber("1.005"), "scale 2"),
        ("numeric(10,2)", "NaN", "no exact form"),
        ("varchar(2)", "abc", "too long"),
        ("jsonb", "{", "is no jsonb"),
        ("bytea", "ff", "bytes are written"),
        ("date", "29.02.2024", "is no date"),
        ("date", "infinity", "is no date"),
        ("timestamp", "2024-01-01 00:00:00+00", "has no zone"),
        ("timestamptz", "2024-01-01 00:00:00", "give its zone"),
        ("timestamp", "2024-01-01 00:00:00.1234567", "more than microseconds"),
        ("uuid", "x", "is no uuid"),
        ("integer[]", "{{1},{2}}", "no exact form"),
        ("integer[]", "1,2", "an array is written"),
    ],
)
def test_what_has_no_exact_place_is_refused(kind: str, written: object, words: str) -> None:
    with pytest.raises(ViewError, match=words):
        value_of(type_named(kind), written)


@pytest.mark.parametrize("name", ["", "string", "bigintt", "timestamp[", "numeric(", "(3)"])
def test_what_is_no_type_is_refused(name: str) -> None:
    with pytest.raises(ViewError, match="no type that a case can give"):
        type_named(name)


@given(st.decimals(min_value=-(10**8), max_value=10**8, places=2))
def test_a_number_keeps_every_digit(number: Decimal) -> None:
    assert value_of(type_named("numeric(12,2)"), CaseNumber(number)) == number


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_list_of_texts_is_itself(items: list[str]) -> None:
    assert value_of(type_named("text[]"), items) == items


def test_expected_values_may_be_nested() -> None:
    kind = parse_type("struct<code:string,fares:array<decimal(4,1)>>")
    assert expected_of(kind, {"fares": [1, CaseNumber("2.5")]}) == {
        "code": None,
        "fares": [Decimal(1), Decimal("2.5")],
    }
    assert expected_of(parse_type("map<string,int>"), {"a": 1}) == [("a", 1)]


@pytest.mark.parametrize(
    ("kind", "written", "words"),
    [
        ("struct<a:int>", {"b": 1}, "no field b"),
        ("struct<a:int>", 1, "is no struct"),
        ("array<int>", 1, "is no list"),
        ("decimal(4,1)", CaseNumber("0.25"), "scale 1"),
    ],
)
def test_an_expected_value_must_fit_its_column(kind: str, written: object, words: str) -> None:
    with pytest.raises(ViewError, match=words):
        expected_of(parse_type(kind), written)
