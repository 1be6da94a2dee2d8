"""Table patterns."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.rows.relation import TableName
from changelog.source.tables.filter import ColumnPattern, TableFilter, left_out


def wants(name, include=("*.*",), exclude=()):
    return TableFilter(include, exclude).wants(TableName(*name))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders", ("public", "orders"), True),
        ("orders", ("shop", "orders"), False),
        ("shop.orders", ("shop", "orders"), True),
        ("shop.*", ("shop", "orders"), True),
        ("shop.*", ("shop2", "orders"), False),
        ("*.orders", ("shop", "orders"), True),
        ("ord*", ("public", "orders"), True),
        ("ord*", ("public", "word"), False),
        ("order?", ("public", "orders"), True),
        ("order?", ("public", "order"), False),
        ("a+b", ("public", "a+b"), True),
        ("a+b", ("public", "aab"), False),
        ("Orders", ("public", "orders"), False),
        ('"odd.schema"."a""; DROP"', ("odd.schema", 'a"; DROP'), True),
        ('"a*"', ("public", "a*"), True),
        ('"a*"', ("public", "ab"), False),
        ("*.*", ("x", "line\nfeed"), True),
    ],
)
def test_a_pattern_covers_a_table(pattern, name, matches):
    assert wants(name, [pattern]) is matches


def test_excluding_is_stronger_than_including():
    assert not wants(("public", "orders"), ["public.*"], ["orders"])
    assert wants(("public", "other"), ["public.*"], ["orders"])


def test_all_tables_are_wanted_unless_asked_otherwise():
    assert wants(("any", "table"))


def test_only_full_names_have_to_exist():
    chosen = TableFilter(["a", "b*", 's."t*"', "gone"], ["gone"])
    assert chosen.named == (TableName("public", "a"), TableName("s", "t*"))


@pytest.mark.parametrize("pattern", ["*", " * ", "**"])
def test_a_star_without_a_schema_is_refused_and_not_taken_for_public(pattern):
    with pytest.raises(ConfigurationError, match="names no schema") as caught:
        TableFilter([pattern])
    assert "public.*" in caught.value.hint
    assert "*.*" in caught.value.hint
    with pytest.raises(ConfigurationError, match="names no schema"):
        ColumnPattern.parse(f"{pattern.strip()}.password")


@pytest.mark.parametrize("pattern", ["", "a.b.c", ".a", "a.", '"a', 'a"b'])
def test_a_malformed_pattern_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="not a table pattern"):
        TableFilter([pattern])


def test_the_hint_to_leave_columns_out_is_read_back():
    table = TableName("odd schema", "t")
    said = left_out(table, ["a b", "sum"])
    assert """--columns '"odd schema".t."a b","odd schema".t.sum'""" in said
    pattern = ColumnPattern.parse('"odd schema".t."a b"')
    assert pattern.matches(table, "a b")
    assert not pattern.matches(table, "sum")
