"""Look before the leap: generations that wait, beside what readers see, on the real servers."""

import json
import signal
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis
from deltalake import DeltaTable

from changelog.runtime.tls_trust import authorities
from tests.support.captured_project import captured_database, rebuild_view
from views.generations import succession
from views.rebuild.run import proof

REPOSITORY = Path(__file__).parents[2]
ALL_SINKS = """-- key: id
-- sinks: delta, search, cache
SELECT id, name, amount FROM things
"""
LEAN = ALL_SINKS.replace("delta, search, cache", "delta, cache")
QUICK = ("--verify", "none")


@pytest.fixture(scope="module")
def project(stack, spark, tmp_path_factory):
    """A captured table; each test has a view of its own."""
    with captured_database(
        stack,
        tmp_path_factory.mktemp("staged"),
        """
        CREATE TABLE things (id int PRIMARY KEY, name text NOT NULL, amount numeric(10, 2));
        INSERT INTO things SELECT n, 'name ' || n, n * 0.5 FROM generate_series(1, 30) AS n;
        """,
    ) as (made, _):
        yield made


@pytest.fixture
def run(capsys, monkeypatch, project):
    return partial(rebuild_view, capsys, monkeypatch, project)


@pytest.fixture
def view(project, run):
    """A view in Delta and a cache, whose first generation calls row 1 by the name Old."""
    for path in (project.root / "views").glob("*.*"):
        path.unlink()
    name = f"v{uuid.uuid4().hex[:12]}"
    project.view(f"{name}.sql", LEAN)
    rename(project, "Old")
    assert run(name, *QUICK).code == 0
    return name


def rename(project, name):
    project.execute(f"UPDATE things SET name = '{name}' WHERE id = 1")
    project.capture()


def served(project, endpoints, view):
    """Return row 1's name as each sink serves it at its stable place; None where nothing is."""
    path = str(project.warehouse / view)
    delta = project.delta(view)[0]["name"] if DeltaTable.is_deltatable(path) else None
    with closing(redis.Redis.from_url(endpoints.cache, decode_responses=True)) as cache:
        current = cache.get(f"{view}:current")
        entry = json.loads(str(cache.get(f"{view}:{current!s}:1")))["name"] if current else None
    answer = httpx.get(f"{endpoints.search}/{view}/_doc/1", verify=authorities())
    found = [delta, entry]
    if "search" in (project.root / "views" / f"{view}.sql").read_text():
        found.append(answer.json()["_source"]["name"] if answer.status_code == 200 else None)
    return found


def held(project, view):
    """List the generations that are in the warehouse."""
    folder = project.warehouse / view / "_generations"
    return sorted(int(path.name) for path in folder.iterdir()) if folder.exists() else []


def test_what_is_staged_is_tried_compared_published_and_taken_back(
    project, endpoints, view, run
) -> None:
    project.view(f"{view}.sql", ALL_SINKS)
    assert run(view, *QUICK).code == 0
    rename(project, "New")
    ran = run(view, "--stage", "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["generation"], result["staged"], result["published"]) == (3, True, False)
    assert (result["verified"], result["switch_seconds"]) == (True, None)
    assert served(project, endpoints, view) == ["Old"] * 3

    places = result["addresses"]
    assert set(places) == {"delta", "search", "cache"}
    tried = DeltaTable(places["delta"]["path"]).to_pyarrow_table().to_pylist()
    assert {row["name"] for row in tried if row["id"] == 1} == {"New"}
    document = f"{places['search']['url']}/{places['search']['index']}/_doc/1"
    found = httpx.get(document, verify=authorities())
    assert found.json()["_source"]["name"] == "New"
    with closing(redis.Redis.from_url(places["cache"]["url"], decode_responses=True)) as cache:
        assert json.loads(str(cache.get(places["cache"]["prefix"] + "1")))["name"] == "New"

    (diff,) = run(view, "--diff", "--json").results
    assert (diff["serving"], diff["generation"], diff["sink"]) == (2, 3, "delta")
    assert [diff[kind] for kind in ("added", "removed", "changed")] == [0, 0, 1]
    assert diff["by_column"] == {"name": 1}
    (sample,) = diff["samples"]
    assert (sample["key"], sample["before"], sample["after"]) == ({"id": "1"}, "Old", "New")

    rename(project, "Newer")
    assert run(view, "--keep", "1", *QUICK).code == 0, "a rebuild goes on beside it"
    assert served(project, endpoints, view) == ["Newer"] * 3
    assert held(project, view) == [3, 4]
    ran = run(view, "--publish", "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["generation"], result["published"], result["verified"]) == (3, True, True)
    assert 0 < result["switch_seconds"] < 5
    assert served(project, endpoints, view) == ["New"] * 3
    last = run("--history", view, "--json").results
    row = next(row for row in last if row["generation"] == 3)
    assert (row["state"], row["switch_seconds"]) == ("published", result["switch_seconds"])
    assert row["note"] == "was staged, in place of generation 4"
    assert run(view, "--rollback").code == 0
    assert served(project, endpoints, view) == ["Newer"] * 3, "what served before"


@pytest.mark.matrix
def test_a_kill_in_the_switch_leaves_whole_generations_and_the_next_run_finishes(
    project, endpoints, view, run, monkeypatch
) -> None:
    rename(project, "New")
    assert run(view, "--stage", *QUICK).code == 0
    killed = project.crash(view, "--defect", "die_in_the_switch", also=["--publish", *QUICK])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert served(project, endpoints, view) == ["New", "Old"]
    assert project.history(view)[-1] == (2, "staged")
    ran = run(view, "--publish", *QUICK, "--json")
    assert ran.code == 0, ran.err
    assert ran.results[0]["generation"] == 2
    assert served(project, endpoints, view) == ["New", "New"]
    assert project.history(view)[-1] == (2, "published")


@pytest.mark.matrix
@pytest.mark.parametrize(("stage", "then"), [("publish", "staged"), ("record", "published")])
def test_a_kill_round_the_switch_loses_nothing(project, endpoints, view, run, stage, then) -> None:
    rename(project, "New")
    assert run(view, "--stage", *QUICK).code == 0
    killed = project.crash(view, "--kill", stage, also=["--publish", *QUICK])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    name = {"staged": "Old", "published": "New"}[then]
    assert served(project, endpoints, view) == [name] * 2
    rename(project, "Newest")
    assert run(view, *QUICK).code == 0
    assert (2, then) == [row for row in project.history(view) if row[0] == 2][-1]
    assert served(project, endpoints, view) == ["Newest"] * 2
    assert 2 in held(project, view)


def what_waits_is_there(project, view):
    """The invariant of other runs beside a staged generation."""
    assert 2 in held(project, view)
    assert (2, "staged") in project.history(view)


@pytest.mark.matrix
def test_refreshes_leave_what_waits_alone_and_twin_that_ignores_the_mark_does_not(
    project, endpoints, view, run, monkeypatch
) -> None:
    rename(project, "Waits")
    assert run(view, "--stage", *QUICK).code == 0
    for name in ("One", "Two", "Three"):
        rename(project, name)
        assert run(view, "--refresh", "--keep", "1", *QUICK).code == 0
    what_waits_is_there(project, view)
    assert served(project, endpoints, view) == ["Three"] * 2
    monkeypatch.setattr(succession, "staged", lambda _: [])
    rename(project, "Four")
    assert run(view, "--keep", "1", *QUICK).code == 0
    with pytest.raises(AssertionError):
        what_waits_is_there(project, view)


@pytest.mark.matrix
@pytest.mark.slow
def test_what_a_killed_stage_left_is_removed(project, endpoints, view, run) -> None:
    rename(project, "New")
    killed = project.crash(view, "--kill", "stage", also=["--stage", *QUICK])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert held(project, view) == [1, 2]
    assert run(view, "--stage", *QUICK).code == 0
    assert held(project, view) == [1, 3]
    assert served(project, endpoints, view) == ["Old"] * 2


@pytest.mark.matrix
def test_a_newer_one_replaces_it_and_an_abort_ends_it(project, endpoints, view, run) -> None:
    assert run(view, "--stage", *QUICK).code == 0
    ran = run(view, "--stage", *QUICK, "--json")
    assert ran.results[0]["replaced"] == [2]
    assert held(project, view) == [1, 3]
    refused = run(view, "--publish", "--json")
    assert refused.code == 1
    assert "staged without being verified" in refused.results[0]["error"]
    assert run(view, "2", "--publish").code == 1
    ran = run(view, "--abort", "--json")
    assert ran.results == [{"view": view, "generation": 3, "aborted": True}]
    assert held(project, view) == [1]
    assert project.history(view)[-3:] == [(3, "staged"), (2, "aborted"), (3, "aborted")]
    assert served(project, endpoints, view) == ["Old"] * 2


def test_a_generation_that_was_altered_is_not_shown_to_readers(
    project, endpoints, view, run
) -> None:
    (result,) = run(view, "--stage", "--json").results
    with closing(redis.Redis.from_url(endpoints.cache)) as cache:
        cache.delete(result["addresses"]["cache"]["prefix"] + "7")
    refused = run(view, "--publish", "--json")
    assert refused.code == 1
    assert "generation 2 has 29 rows, and 30 were written" in refused.results[0]["error"]
    assert held(project, view) == [1, 2]
    assert run(view, "--publish", *QUICK).code == 0, "for whom the rows do not matter"
    with closing(redis.Redis.from_url(endpoints.cache)) as cache:
        cache.set(f"{view}:1:100", "{}")
    refused = run(view, "--rollback", "--json")
    assert refused.code == 1
    assert "generation 1 has" in refused.results[0]["error"]
    assert run(view, "--rollback", *QUICK).code == 0


VALUES = """-- key: amount
-- sinks: delta, search, cache, topic
SELECT amount, cast(amount AS double) / 3 AS third, collect_list(name) AS names,
    array(struct(count(*) AS n, timestamp '2024-01-02 03:04:05.000006' AS at)) AS lines
FROM things GROUP BY amount
"""


def altered(project, endpoints, run, view):
    """Stage the view, alter one value in the cache, and publish; then put it back."""
    project.execute("UPDATE things SET name = name || '!'")
    project.capture()
    ran = run(view, "--stage", "--json")
    assert ran.code == 0, ran.err
    prefix = ran.results[0]["addresses"]["cache"]["prefix"]
    with closing(redis.Redis.from_url(endpoints.cache, decode_responses=True)) as cache:
        name = min(cache.scan_iter(prefix + "*"))
        before = str(cache.get(name))
        cache.set(name, before.replace("!", "?"))
        refused = run(view, "--publish", "--json")
        cache.set(name, before)
    return refused


@pytest.mark.matrix
def test_a_value_that_was_altered_since_it_was_proved_is_not_shown_to_readers(
    project, endpoints, view, run
) -> None:
    project.view(f"{view}.sql", VALUES)
    assert run(view).code == 0
    refused = altered(project, endpoints, run, view)
    assert refused.code == 1
    assert "in cache: the rows of generation 3 have other values" in refused.results[0]["error"]
    ran = run(view, "--publish")
    assert ran.code == 0, ran.err
    ran = run(view, "--rollback")
    assert ran.code == 0, ran.err


@pytest.mark.matrix
def test_twin_that_counts_rows_alone_shows_them(project, endpoints, view, run, monkeypatch) -> None:
    monkeypatch.setattr("views.rebuild.read_back._proof", lambda *_: {})
    project.view(f"{view}.sql", VALUES)
    assert run(view).code == 0
    assert altered(project, endpoints, run, view).code == 0


@pytest.mark.matrix
def test_an_old_state_is_put_aside_and_people_are_told_where(project, endpoints, view, run) -> None:
    lsn = run("--history", view, "--json").results[-1]["lsn"]
    rename(project, "New")
    assert run(view, *QUICK).code == 0
    ran = run(view, "--as-of", lsn, "--stage")
    assert ran.code == 0, ran.err
    said = " ".join(ran.err.split())
    assert "generation 3 is staged, no reader sees it" in said
    assert "try it: delta(path=" in said
    assert served(project, endpoints, view) == ["New"] * 2
    assert "1 changed" in run(view, "--diff").err
    assert run(view, "--publish").code == 0
    assert served(project, endpoints, view) == ["Old"] * 2


@pytest.mark.matrix
def test_a_refuted_generation_is_not_staged(project, endpoints, view, run, monkeypatch) -> None:
    def refuted(_):
        raise AssertionError("planted")

    monkeypatch.setattr(proof, "judged", refuted)
    ran = run(view, "--stage", "--json")
    assert ran.code == 1
    assert ran.results[0]["staged"] is False
    assert held(project, view) == [1]
    assert project.history(view)[-1] == (2, "failed")


@pytest.mark.matrix
def test_a_view_without_delta_is_compared_by_its_documents(project, run, endpoints) -> None:
    name = f"v{uuid.uuid4().hex[:12]}"
    project.view(f"{name}.sql", ALL_SINKS.replace("delta, ", ""))
    rename(project, "Old")
    assert run(name, *QUICK).code == 0
    project.execute("DELETE FROM things WHERE id = 30")
    rename(project, "New")
    text = ALL_SINKS.replace("delta, ", "").replace("amount", "amount, 1 AS more")
    project.view(f"{name}.sql", text)
    plan = run(name, "--plan", "--json").results[0]
    assert plan["definition_changed"] is True
    assert "+SELECT id, name, amount, 1 AS more FROM things" in plan["definition_diff"]
    assert "its definition is another than that of generation 1" in run(name, "--plan").err
    assert run(name, "--stage", *QUICK).code == 0
    (diff,) = run(name, "--diff", "--json").results
    project.execute("INSERT INTO things VALUES (30, 'name 30', 15)")
    assert (diff["sink"], diff["removed"], diff["changed"]) == ("search", 1, 1)
    assert diff["columns"]["added"] == {"more": "int"}
    assert diff["by_column"] == {"name": 1}
    assert run(name, "--drop", "--yes").code == 0


@pytest.mark.matrix
def test_a_dropped_view_is_gone_from_every_sink_also_without_its_file(
    project, endpoints, view, run
) -> None:
    project.view(f"{view}.sql", ALL_SINKS)
    assert run(view, *QUICK).code == 0
    assert run(view, "--drop").code == 2, "nobody is there to ask"
    assert served(project, endpoints, view) == ["Old"] * 3
    (project.root / "views" / f"{view}.sql").unlink()
    ran = run(view, "--drop", "--yes", "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["dropped"], set(result["sinks"])) == (True, {"delta", "search", "cache"})
    project.view(f"{view}.sql", ALL_SINKS)
    assert served(project, endpoints, view) == [None] * 3
    assert not (project.warehouse / view).exists()
    with closing(redis.Redis.from_url(endpoints.cache)) as cache:
        assert list(cache.scan_iter(f"{view}:*", count=10_000)) == []
    indices = httpx.get(f"{endpoints.search}/{view}-*/_mapping", verify=authorities()).json()
    assert indices == {}
    assert project.history(view)[-1] == (2, "dropped")
    (listed,) = run("--list", view, "--json").results
    assert listed["generation"] is None
