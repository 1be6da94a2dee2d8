"""`rebuild-view` as far as it needs no server: usage, help, listing, errors."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from changelog.config import load_project
from replay.base.sections import warehouse_of
from views import cli
from views.generations.history import DROPPED, PUBLISHED, REFUTED, GenerationHistory, HistoryRow
from views.scaffold.cli import write_project


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    write_project(tmp_path / "p")

    def ran(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rebuild-view", *words])
        monkeypatch.chdir(tmp_path / "p")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return ran


@pytest.mark.parametrize(
    "words",
    [
        ["a", "--all"],
        ["--plan"],
        ["a", "--plan", "--rollback"],
        ["a", "--verify", "some"],
        ["a", "--keep", "0"],
        ["--nonsense"],
        ["a", "--stage", "--refresh"],
        ["a", "--stage", "--follow"],
        ["a", "--stage", "--publish"],
        ["a", "--stage", "--plan"],
        ["a", "--publish", "--diff"],
        ["a", "--publish", "--verify", "full"],
        ["a", "--publish", "--as-of", "0/1"],
        ["a", "--diff", "--verify", "none"],
        ["a", "--abort", "--refresh"],
        ["a", "3"],
        ["a", "3", "--stage"],
        ["a", "b", "3", "--publish"],
        ["3", "--diff"],
        ["a", "3", "4", "--diff"],
        ["--all", "--drop"],
        ["a", "--yes"],
        ["a", "--follow", "--drop"],
    ],
)
def test_usage_errors_end_with_2_and_without_a_trace(run, words) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_views_are_listed_without_any_server(run) -> None:
    code, out, err = run("--list", "--json")
    assert code == 0
    assert json.loads(out) == {
        "view": "orders_per_customer",
        "kind": "sql",
        "key": ["customer_id"],
        "sinks": ["delta"],
        "tables": ["customers", "orders"],
        "views": [],
        "description": "What each customer ordered.",
        "generation": None,
        "refuted": False,
    }
    (line,) = err.splitlines()
    assert line.startswith("proof and refresh are not shown: ")
    assert "orders_per_customer" in run("--list")[2]


def test_what_was_refuted_while_it_serves_is_listed_so(run, tmp_path) -> None:
    served = HistoryRow(view="orders_per_customer", generation=4, state=PUBLISHED, lsn="0/1")
    history = GenerationHistory(warehouse_of(load_project(tmp_path / "p", needs=[])))
    history.append([served, served.again(state=REFUTED, verified=False)])
    assert json.loads(run("--list", "--json")[1])["refuted"]
    assert "refuted: 4, LSN 0/1" in " ".join(run("--list")[2].split())


def test_what_serves_without_a_file_is_named_by_the_list(run, tmp_path) -> None:
    row = HistoryRow(view="before", generation=4, state=PUBLISHED, lsn="0/1", sinks=("search",))
    gone = replace(row, view="gone")
    history = GenerationHistory(warehouse_of(load_project(tmp_path / "p", needs=[])))
    history.append([row, gone, gone.again(state=DROPPED)])
    code, out, err = run("--list", "--json")
    assert (code, json.loads(out)["generation"]) == (0, None)
    said = "before has no file any more, and generation 4 still serves in search"
    assert [line for line in err.splitlines() if line.startswith("before")] == [
        f"{said}: rebuild-view before --drop removes it"
    ]
    assert "before" not in run("orders_per_customer", "--list")[2]


def test_a_list_does_not_say_that_nothing_serves_where_the_settings_cannot_be_used(
    run, tmp_path
) -> None:
    (tmp_path / "p" / "changelog.toml").write_text("[rebuild]\nkep = 1\n", "utf-8")
    code, out, err = run("--list", "--json")
    assert (code, "generation" in json.loads(out)) == (0, False)
    assert "what is published is not shown: " in err
    code, _, err = run("--list")
    assert (code, "orders_per_customer" in err, "nothing yet" in err) == (0, True, False)


def test_a_file_that_cannot_be_used_leaves_the_others_on_the_list(run, tmp_path) -> None:
    (tmp_path / "p" / "views" / "broken.sql").write_text("SELECT 1", "utf-8")
    code, out, err = run("--list", "--json")
    listed, broken = [json.loads(line) for line in out.splitlines()]
    assert (code, listed["view"]) == (2, "orders_per_customer")
    assert "does not say what its key is" in broken["error"]
    assert 'error: view "broken": broken.sql does not say' in err
    code, _, err = run("--list")
    assert "orders_per_customer" in err.partition("error: ")[0]


def test_an_error_is_one_line_and_one_object_per_view(run) -> None:
    code, out, err = run("orders_per_customer", "--json")
    assert code == 2
    (found,) = [json.loads(line) for line in out.splitlines()]
    assert found["view"] == "orders_per_customer"
    assert found["exit_code"] == 2
    assert "no embedded servers run" in found["error"]
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert " | hint: " in err


def test_a_folder_without_a_project_is_told(run, tmp_path) -> None:
    code, _, err = run("--list", "--project", str(tmp_path / "nowhere"))
    assert code == 2
    assert "changelog init" in err


@pytest.mark.parametrize("words", [["--publish"], ["--abort"], ["--diff"]])
def test_what_is_not_staged_is_neither_published_compared_nor_removed(run, words) -> None:
    code, out, err = run("orders_per_customer", "--json", *words)
    assert code == 1
    assert "has no staged generation" in json.loads(out)["error"]
    assert "--stage` makes one" in err


def test_nobody_there_to_ask_nothing_is_dropped(run, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    code, _, err = run("orders_per_customer", "--drop")
    assert code == 2
    assert "nobody is there to ask: orders_per_customer (delta)" in err
    assert "--yes does not ask" in err


def test_a_no_on_a_terminal_drops_nothing(run, monkeypatch) -> None:
    monkeypatch.setattr("views.command.sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    monkeypatch.setattr("views.command.drop", lambda *_: pytest.fail("it was dropped"))
    code, _, err = run("orders_per_customer", "--drop")
    assert (code, "not dropped" in err) == (2, True)


def test_a_view_that_nobody_knows_cannot_be_dropped(run) -> None:
    code, _, err = run("orders_per_custmer", "--drop", "--yes")
    assert code == 2
    assert "did you mean orders_per_customer?" in err
