"""Parameters of views: literals in their places, exact or refused."""

import json
import tomllib
from datetime import date
from pathlib import Path

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from changelog.config import load_project
from changelog.contract.base.errors import ViewError
from changelog.runtime.setting import WrittenFloat
from views.project.catalog import Catalog, catalog_of, literal_of, with_parameters
from views.project.definition import text_of

PATH = Path("views/v.sql")


def made(text: str, **values: object) -> str:
    return with_parameters(PATH, text, values)[0]


def refused(text: str, **values: object) -> str:
    with pytest.raises(ViewError) as error:
        with_parameters(PATH, text, values)
    assert error.value.exit_code == 2
    return str(error.value)


def test_a_parameter_is_a_literal_where_it_stands_and_nowhere_else() -> None:
    text = "-- :late\nSELECT ':late', a::int, x -:less /* :late */ FROM t WHERE d>:late AND (:_b)"
    found, used = with_parameters(PATH, text, {"late": 15, "less": -3, "_b": True, "other": 1})
    assert found == (
        "-- :late\nSELECT ':late', a::int, x -(-3) /* :late */ FROM t WHERE d>15 AND (TRUE)"
    )
    assert used == {"late": "15", "less": "(-3)", "_b": "TRUE"}


@pytest.mark.parametrize(
    ("written", "literal"),
    [
        ("19.90", "19.90"),
        ("+0.5", "0.5"),
        ("-1_000.50", "(-1000.50)"),
        ("0.1234567890123456789", "0.1234567890123456789"),
        ("1e3", "1e3"),
        ("9007199254740993", "9007199254740993"),
        ("true", "TRUE"),
        ("'it''s'".replace("''", ""), "'its'"),
        ('"it\'s \\\\ \\n %"', "'it\\'s \\\\ \\n %'"),
        ("2024-02-29", "DATE '2024-02-29'"),
        ("2024-02-29T10:00:00.5+02:00", "TIMESTAMP '2024-02-29 08:00:00.500000'"),
        ("2024-02-29T10:00:00", "TIMESTAMP_NTZ '2024-02-29 10:00:00'"),
    ],
)
def test_a_value_of_the_settings_is_written_exactly(
    tmp_path: Path, written: str, literal: str
) -> None:
    (tmp_path / "changelog.toml").write_text(f"[parameters]\np = {written}\n", "utf-8")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("-- key: id\nSELECT id, :p AS p FROM t", "utf-8")
    spec = catalog_of(load_project(tmp_path, needs=[])).load("v")
    assert spec.parameters == {"p": literal}
    assert text_of(spec) == f"-- key: id\nSELECT id, {literal} AS p FROM t"


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, None, WrittenFloat("inf"), WrittenFloat("nan"), float("nan"), "a\0b"]
)
def test_what_no_literal_gives_exactly_is_refused(value: object) -> None:
    assert 'parameter "p" has no exact form' in refused("SELECT :p", p=value)


@given(st.text(st.characters(exclude_characters="\0$", exclude_categories=["Cs"])))
def test_a_text_stays_a_text_whatever_is_in_it(text: str) -> None:
    parsed = sqlglot.parse_one(made("SELECT :p AS p", p=text), read="spark")
    (item,) = parsed.expressions
    assert item.this.is_string
    assert item.this.this == text


def test_a_parameter_without_a_value_is_told_with_its_line() -> None:
    said = refused("-- key: id\nSELECT\n  :lat FROM t", late=1)
    assert 'v.sql:3: parameter "lat" has no value' in said
    assert "did you mean :late?" in said


@pytest.mark.parametrize("text", ["SELECT a:p FROM t", "SELECT f(1):p", "SELECT x LIKE:p"])
def test_a_colon_directly_behind_something_is_refused(text: str) -> None:
    assert "directly behind something" in refused(text, p=1)


def test_text_that_does_not_parse_is_left_to_the_parser() -> None:
    assert made("SELECT 'a :p", p=1) == "SELECT 'a :p"


def test_the_variable_of_the_section_gives_values_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGELOG_PARAMETERS", json.dumps({"p": 1.50}).replace("1.5", "1.50"))
    (tmp_path / "views").mkdir()
    found = catalog_of(load_project(tmp_path, needs=[])).parameters["p"]
    assert literal_of(found) == "1.50"


def test_a_view_has_the_parameters_of_the_views_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "a.sql").write_text("-- key: id\nSELECT id FROM t WHERE d > :since")
    (tmp_path / "views" / "b.sql").write_text("-- key: id\nSELECT id, :n AS n FROM a")
    values = tomllib.loads("since = 2024-01-01\nn = 1")
    spec = Catalog.of(tmp_path, values).load("b")
    assert spec.parameters == {"n": "1", "since": "DATE '2024-01-01'"}
    assert "d > DATE '2024-01-01'" in (spec.sql or "")
    assert literal_of(date(2024, 1, 1)) == "DATE '2024-01-01'"
