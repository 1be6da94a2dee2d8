"""`views.cases.file`: files of cases read, and refused where they fit nothing."""

import tomllib
from pathlib import Path

import pytest

from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.rows.relation import TableName
from views.cases.file import CaseFile, parse_cases, path_of, read_cases
from views.cases.skeleton import skeleton, write_skeleton
from views.project.spec import ViewSpec
from views.project.sql import parse_sql_view

ORDERS, ITEMS = TableName("public", "orders"), TableName("sales", "items")
HEAD = '[tables.orders]\nid = "bigint"\nnote = "text"\n[tables."sales.items"]\nid = "bigint"\n'
CASE = '[[case]]\nname = "one"\n'


def spec(folder: Path = Path("views")) -> ViewSpec:
    text = "-- key: id\nSELECT o.id FROM orders AS o JOIN sales.items AS i ON i.id = o.id\n"
    return parse_sql_view("v", folder / "v.sql", text)


def parse(text: str) -> CaseFile:
    return parse_cases(spec(), "v.cases.toml", text)


def test_a_case_has_all_tables_and_all_columns() -> None:
    (case,) = parse(HEAD + CASE + "tables.orders = [{ id = 1 }]\nrows = []\n").cases
    assert case.tables == {ORDERS: [{"id": 1, "note": None}], ITEMS: []}
    assert case.whole
    assert case.rows == []


def test_some_rows_or_an_error_may_be_expected() -> None:
    more = '[[case]]\nname = "two"\nerror = "overflow"\n'
    some, fails = parse(HEAD + CASE + "contains = [{ id = 1 }]\n" + more).cases
    assert not some.whole
    assert fails.rows is None
    assert fails.error == "overflow"


def test_the_mark_that_some_editors_put_first_is_no_part_of_a_file(tmp_path: Path) -> None:
    text = HEAD + CASE + "rows = []\n"
    path_of(spec(tmp_path)).write_text(text, encoding="utf-8-sig")
    assert read_cases(spec(tmp_path)).cases == parse(text).cases


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "a file of cases is TOML"),
        (HEAD, "holds no case"),
        (HEAD + "[[cases]]\n", "did you mean case?"),
        ("[tables.orders]\nid = 'bigint'\n" + CASE + "rows = []", "what columns sales.items has"),
        (HEAD + "[tables.other]\nid = 'int'\n" + CASE, "does not read other"),
        (HEAD.replace("bigint", "bigints") + CASE, "tables.orders.id: 'bigints' is no type"),
        (HEAD + "[[case]]\nrows = []", "case 1 has no name"),
        (HEAD + CASE, "says nothing of the result"),
        (HEAD + CASE + "rows = []\nerror = 'x'", "rows and error"),
        (HEAD + CASE + "row = []", "did you mean rows?"),
        (HEAD + CASE + "contains = []", "contains nothing"),
        (HEAD + CASE + "error = ''", "a part of its text"),
        (HEAD + CASE + "rows = 1", "must be a list of rows"),
        (HEAD + CASE + "rows = []\n" + CASE + "rows = []", "two cases called 'one'"),
        (HEAD + CASE + "tables.orders = [{ idd = 1 }]\nrows = []", "did you mean id?"),
        (HEAD + CASE + "tables.orders = [{ id = 'x' }]\nrows = []", "orders.id: 'x' is no bigint"),
    ],
)
def test_what_does_not_fit_is_refused_and_says_where(text: str, words: str) -> None:
    with pytest.raises(ViewError) as error:
        parse(text)
    assert words in str(error.value)


def test_a_skeleton_is_a_file_that_reads() -> None:
    types = {ORDERS: {"id": "bigint", "a b": "text"}, ITEMS: {"id": "numeric(10,2)"}}
    text = skeleton(spec(), types)
    (case,) = parse(text).cases
    assert case.rows == []
    assert tomllib.loads(text)["tables"]["orders"] == {"id": "bigint", "a b": "text"}


def test_a_skeleton_without_the_log_says_what_to_fill_in() -> None:
    assert 'id = "bigint"' in skeleton(spec(), {})


def test_a_skeleton_overwrites_nothing(tmp_path: Path) -> None:
    assert write_skeleton(spec(tmp_path), {}) == path_of(spec(tmp_path))
    with pytest.raises(ConfigurationError, match="nothing was written"):
        write_skeleton(spec(tmp_path), {})
