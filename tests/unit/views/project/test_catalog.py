"""The catalogue of a project and its Python views."""

import os
from pathlib import Path
from typing import Any

import pytest

from changelog.contract.base.errors import ViewError
from changelog.contract.rows.relation import TableName
from views.project.catalog import Catalog
from views.project.spec import PythonSource, check_captured, check_view_name, parse_table

SQL = "-- key: id\nSELECT id FROM t"
PYTHON = """
from views import view

@view(key="id", sinks=["delta", "cache"], tables=["t", "sales.orders"])
def anything(orders, t):
    '''Orders of t.

    More about it.
    '''
    return ("made of", t, orders)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "views").mkdir()
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / "views" / name).write_text(text, encoding="utf-8")


def refused(project: Path, *names: str) -> str:
    with pytest.raises(ViewError) as error:
        Catalog.of(project).load_all(names or None)
    assert error.value.exit_code == 2
    return str(error.value)


def transformed(project: Path, name: str, states: dict[TableName, Any]) -> Any:
    source = Catalog.of(project).load(name).source
    assert isinstance(source, PythonSource)
    return source.transform(states)


def test_each_file_declares_the_view_of_its_name(project: Path) -> None:
    write(project, "beta.sql", SQL)
    write(project, "alpha.py", PYTHON)
    write(project, "_shared.py", "raise SystemExit")
    write(project, "README.md", "")
    specs = Catalog.of(project).load_all()
    assert [(spec.name, spec.kind) for spec in specs] == [("alpha", "python"), ("beta", "sql")]


def test_the_mark_that_some_editors_begin_a_file_with_is_no_part_of_it(project: Path) -> None:
    write(project, "a.sql", "\ufeff" + SQL)
    write(project, "b.sql", SQL)
    marked, plain = Catalog.of(project).load_all()
    assert (marked.sql, marked.key) == (plain.sql, plain.key)


def test_a_view_named_twice_is_rebuilt_once(project: Path) -> None:
    write(project, "a.sql", SQL)
    assert len(Catalog.of(project).load_all(["a", "a"])) == 1


def test_an_unknown_view_is_refused_with_the_names_that_are_near(project: Path) -> None:
    write(project, "flights.sql", SQL)
    write(project, "routes.sql", SQL)
    assert refused(project, "flihgts") == (
        "the project has no view 'flihgts' | hint: did you mean flights?"
    )
    assert "it has flights, routes" in refused(project, "xyz")
    assert "no view '../flights'" in refused(project, "flights", "../flights")


def test_a_project_without_views_is_refused(project: Path) -> None:
    assert "holds no view" in refused(project)
    (project / "views").rmdir()
    assert "holds no folder views" in refused(project)


@pytest.mark.parametrize("name", ["Big.sql", "1a.sql", "a-b.sql", "a" * 64 + ".sql"])
def test_a_file_whose_name_cannot_be_a_views_is_refused(project: Path, name: str) -> None:
    write(project, name, SQL)
    assert "cannot be the name of a view" in refused(project)


def test_a_file_that_cannot_be_a_view_keeps_back_no_other(
    project: Path, tmp_path_factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "gone.sql"
    outside.write_text(SQL, encoding="utf-8")
    (project / "views" / "gone.sql").symlink_to(outside)
    for name in ("good.sql", "Bad-Name.sql", "twice.sql", "reads.sql"):
        write(project, name, SQL)
    write(project, "twice.py", PYTHON)
    os.mkfifo(project / "views" / "pipe.sql")
    write(project, "reads.sql", "-- key: id\nSELECT id FROM twice")
    catalog = Catalog.of(project)
    assert catalog.load("good").name == "good"
    specs, unusable = catalog.load_each()
    assert [spec.name for spec in specs] == ["good"]
    assert sorted(unusable) == ["Bad-Name.sql", "gone", "pipe", "reads", "twice"]
    assert "cannot be the name of a view" in str(unusable["Bad-Name.sql"])
    assert "declare the same view" in str(unusable["reads"])
    assert catalog.names == ["Bad-Name.sql", "gone", "good", "pipe", "reads", "twice"]
    for name in ("gone.sql", "pipe.sql", "twice.py", "twice.sql", "reads.sql"):
        (project / "views" / name).unlink()
    assert [spec.name for spec in Catalog.of(project).load_all()] == ["good"]
    assert "Bad-Name.sql is left out: 'Bad-Name' cannot be the name of a view" in caplog.text


@pytest.mark.parametrize("name", ["a", "a" * 63, "a_1"])
def test_names_of_letters_digits_and_underscores_are_views(name: str) -> None:
    assert check_view_name(name) == name


@pytest.mark.parametrize("name", ["", "a\n", "../a", "a/b", "ä", "_a"])
def test_names_that_could_be_paths_are_not_views(name: str) -> None:
    with pytest.raises(ViewError):
        check_view_name(name)


def test_two_files_for_one_view_are_refused(project: Path) -> None:
    write(project, "a.sql", SQL)
    write(project, "a.py", PYTHON)
    assert "a.py and a.sql declare the same view" in refused(project)


def test_a_link_out_of_the_project_is_refused(project: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.sql"
    outside.write_text(SQL, encoding="utf-8")
    (project / "views" / "a.sql").symlink_to(outside)
    assert "leads out of the project" in refused(project)


def test_a_file_that_is_not_utf8_is_refused(project: Path) -> None:
    (project / "views" / "a.sql").write_bytes(b"-- key: \xff")
    assert "a.sql is not UTF-8" in refused(project)


def test_a_python_view_gets_its_tables_by_parameter(project: Path) -> None:
    write(project, "a.py", PYTHON)
    spec = Catalog.of(project).load("a")
    assert (spec.key, spec.sinks) == (("id",), ("delta", "cache"))
    assert spec.tables == (TableName("public", "t"), TableName("sales", "orders"))
    assert spec.description == "Orders of t."
    states = {TableName("public", "t"): "T", TableName("sales", "orders"): "O"}
    assert transformed(project, "a", states) == ("made of", "T", "O")


def test_a_python_view_reads_the_tables_of_its_parameters(project: Path) -> None:
    write(project, "a.py", "from views import view\n@view(key=['id'])\ndef f(t): return t\n")
    spec = Catalog.of(project).load("a")
    assert (spec.tables, spec.sinks) == ((TableName("public", "t"),), ("delta",))


def test_a_python_view_can_take_its_tables_as_a_dict(project: Path) -> None:
    write(
        project,
        "a.py",
        "import views\n@views.view(key='id', tables=['t', 's.o'])\n"
        "def f(tables): return sorted(tables.items())\n",
    )
    states = {TableName("public", "t"): "T", TableName("s", "o"): "O"}
    assert transformed(project, "a", states) == [("s.o", "O"), ("t", "T")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "marks 0 functions"),
        (PYTHON + PYTHON.replace("anything", "more"), "marks 2 functions"),
        ("def f(:\n", "a.py:1:"),
        ("\nraise ValueError('no')", "a.py:2: the file fails: ValueError: no"),
        ("import no_such_module", "a.py:1: the file fails: ModuleNotFoundError"),
        ("from views import view\n@view(key=[])\ndef f(t): ...", "declares no key"),
        ("from views import view\n@view(key=[1])\ndef f(t): ...", "1 cannot be in its key"),
        ("from views import view\n@view(key='a')\ndef f(): ...", "declares no tables"),
        ("from views import view\n@view(key='a')\ndef f(tables): ...", "does not say which"),
        (
            "from views import view\n@view(key='a', tables='t')\ndef f(u): ...",
            "takes (u), its tables are t",
        ),
        (
            "from views import view\n@view(key='a', tables=['a.b.c'])\ndef f(c): ...",
            "'a.b.c' does not name a table",
        ),
    ],
)
def test_an_unusable_python_file_is_refused(project: Path, text: str, words: str) -> None:
    write(project, "a.py", text)
    assert words in refused(project)


def test_a_table_that_is_not_captured_is_refused_with_those_that_are(project: Path) -> None:
    write(project, "a.sql", "-- key: id\nSELECT id FROM flihgts")
    spec = Catalog.of(project).load("a")
    with pytest.raises(ViewError) as error:
        check_captured(spec, [parse_table("s.o"), parse_table("flights")])
    assert str(error.value) == (
        'view "a" reads table "flihgts", which is not captured'
        " | hint: did you mean flights? captured: flights, s.o"
    )
    check_captured(spec, [parse_table("flihgts")])
