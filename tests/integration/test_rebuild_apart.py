"""Views of one run: each succeeds or fails by itself, and a broker's restart ends none of them."""

from functools import partial

import pytest

from replay.pipeline.replay import Replay
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.services import own_broker
from views.rebuild import rebuild

THINGS = """
CREATE TABLE things (id int PRIMARY KEY, amount numeric(10, 2) NOT NULL);
INSERT INTO things SELECT n, n * 0.5 FROM generate_series(1, 50) AS n;
"""
GOOD = "-- key: id\n-- sinks: delta\nSELECT id, amount FROM things\n"
BAD = {
    "no_such_column": ("-- key: id\n-- sinks: delta\nSELECT id, color FROM things\n", 2),
    "divides_by_zero": (
        "-- key: id\n-- sinks: delta\nSELECT id, 1 DIV (id - 7) AS x FROM things\n",
        1,
    ),
    "no_such_table": ("-- key: id\n-- sinks: delta\nSELECT id FROM nothings\n", 2),
    "no_header": ("SELECT id FROM things\n", 2),
    "shares_a_key": ("-- key: id\n-- sinks: delta\nSELECT 1 AS id FROM things\n", 1),
}


@pytest.fixture(scope="module")
def server(downloads):
    with own_broker() as made:
        yield made


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("shared"), THINGS) as (made, _):
        yield made


@pytest.fixture(scope="module")
def apart(stack, server, spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    with captured_database(stack, folder, THINGS, brokers=server.url) as (made, _):
        yield made


@pytest.fixture
def project(request):
    """A captured table; on a broker of its own where a test restarts it."""
    return request.getfixturevalue("apart" if "server" in request.fixturenames else "shared")


@pytest.fixture
def run(capsys, monkeypatch, project):
    for path in (project.root / "views").glob("*.*"):
        path.unlink()
    return partial(rebuild_view, capsys, monkeypatch, project)


def declare_all(project):
    project.view("good.sql", GOOD)
    for name, (text, _) in BAD.items():
        project.view(f"{name}.sql", text)


def test_a_bad_view_fails_by_itself_and_is_named(project, run) -> None:
    declare_all(project)
    before = {name: len(project.history(name)) for name in BAD}
    ran = run("--all", "--json")
    results = {result["view"]: result for result in ran.results}
    assert results["good"]["published"] is True, ran.err
    assert results["good"]["verified"] is True
    for name, (_, code) in BAD.items():
        assert results[name]["published"] is False
        assert results[name]["exit_code"] == code, results[name]
        assert name in results[name]["error"]
        others = set(results) - {name}
        assert not any(other in results[name]["error"] for other in others)
        assert ran.err.count(f"error: {results[name]['error']}") == 1
    assert ran.code == 1, "the worst of 1 and 2"
    assert [state for _, state in project.history("good")[-2:]] == ["sealed", "published"]
    for name in ("divides_by_zero", "shares_a_key"):
        assert [state for _, state in project.history(name)[before[name] :]] == ["failed"]


@pytest.mark.matrix
def test_together_all_are_published_or_none(project, run) -> None:
    declare_all(project)
    for name in ("no_such_column", "no_such_table", "no_header", "shares_a_key"):
        (project.root / "views" / f"{name}.sql").unlink()
    before = project.history("good")
    ran = run("--all", "--together", "--json")
    results = {result["view"]: result for result in ran.results}
    assert ran.code == 1
    assert [result["published"] for result in ran.results] == [False, False]
    assert 'since view "divides_by_zero" is not' in results["good"]["error"]
    assert [state for _, state in project.history("good")[len(before) :]] == ["failed"]


def test_a_plan_tells_of_each_view(project, run) -> None:
    declare_all(project)
    ran = run("--all", "--plan", "--json")
    assert ran.code == 2
    told = {result["view"]: result for result in ran.results}
    assert told["good"]["plan"] is True
    assert set(told) == {"good", *BAD}
    assert "nothings" in told["no_such_table"]["error"]


def restart_once(monkeypatch, server):
    """Kill the broker as soon as the first attempt has read all, and start it again."""
    original = rebuild.RebuildRun._build
    done: list[bool] = []

    def built(*arguments):
        original(*arguments)
        if not done:
            done.append(True)
            server.kill()
            server.start()

    monkeypatch.setattr(rebuild.RebuildRun, "_build", built)
    return done


@pytest.mark.matrix
def test_a_restart_of_the_broker_is_read_across_by_a_second_attempt(
    project, server, run, monkeypatch
) -> None:
    project.view("across.sql", GOOD)
    done = restart_once(monkeypatch, server)
    ran = run("across", "--json")
    assert done
    assert ran.code == 0, ran.err
    assert ran.results[0]["published"] is True
    assert "leader changed during the scan" in ran.err
    assert project.history("across") == [(1, "failed"), (2, "sealed"), (2, "published")]


@pytest.mark.matrix
def test_one_that_outlasts_every_attempt_fails_with_1(project, server, run, monkeypatch) -> None:
    project.view("never.sql", GOOD)
    monkeypatch.setattr(rebuild, "_WAITS_S", ())
    restart_once(monkeypatch, server)
    ran = run("never", "--json")
    assert ran.code == 1, "the log can still give it: this is no verdict"
    assert "run it again" in ran.results[0]["error"]


@pytest.mark.matrix
def test_twin_without_the_check_the_read_across_leaders_is_published(
    project, server, run, monkeypatch
) -> None:
    project.view("unseen.sql", GOOD)
    monkeypatch.setattr(Replay, "recheck", lambda _: None)
    restart_once(monkeypatch, server)
    assert run("unseen", "--json", "--verify", "none").code == 0
    assert project.history("unseen")[0] == (1, "sealed"), "the first attempt was taken"
