"""Refreshing and following on the real servers: what readers see is what a rebuild would give."""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from replay.store import advancer
from replay.store.stored import StoredRecords
from tests.conformance.conftest import delta_rows
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first
from tests.support.wait import wait_until
from views.project import catalog as inline
from views.project.lineage import KeyLineage
from views.project.query import query
from views.project.spec import SqlSource
from views.rebuild.one_view import refresh

REPOSITORY = Path(__file__).parents[2]
COPY = "-- key: id\nSELECT order_id AS id, amount, customer_id FROM orders WHERE amount > 3"
TOTALS = """-- key: customer_id
SELECT c.customer_id, c.name, count(o.order_id) AS orders, sum(o.amount) AS amount
FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.customer_id
GROUP BY c.customer_id, c.name
"""
PAIRS = """-- key: o, c
SELECT o.order_id AS o, c.customer_id AS c, name FROM orders AS o, customers AS c
WHERE o.customer_id = c.customer_id
"""
RANKED = """-- key: order_id
SELECT order_id, rank() OVER (ORDER BY amount, order_id) AS place FROM orders
"""
NEAR = """-- key: o, c
SELECT o.order_id AS o, c.customer_id AS c, o.amount FROM orders AS o, customers AS c
WHERE c.customer_id < o.customer_id AND c.customer_id + 2 > o.customer_id
"""
TABLES = """
CREATE TABLE customers (customer_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (
    order_id int PRIMARY KEY,
    customer_id int NOT NULL,
    amount numeric(10, 2) NOT NULL
);
"""
ROWS = """
INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(1, 20) AS n;
INSERT INTO customers SELECT n, 'idle ' || n FROM generate_series(1001, 1100) AS n;
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5 FROM generate_series(1, 200) AS n;
"""
CHANGES = """
INSERT INTO customers VALUES (21, 'new');
INSERT INTO orders VALUES (201, 21, 7), (202, 1, 8);
UPDATE orders SET customer_id = 2 WHERE order_id = 20;
UPDATE orders SET amount = 1 WHERE order_id = 40;
UPDATE orders SET order_id = 300 WHERE order_id = 60;
UPDATE customers SET name = 'renamed' WHERE customer_id = 3;
DELETE FROM orders WHERE customer_id = 5;
DELETE FROM customers WHERE customer_id = 5;
"""


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("project"), TABLES) as (made, _):
        yield made


BOTH = pytest.mark.parametrize("how", ["whole", "vectors"], indirect=True)
"""Both ways to merge rows; all steps before and after it are the same for each."""


@pytest.fixture
def how(request):
    """The way rows are merged into a Delta table: files written whole, or deletion vectors."""
    return getattr(request, "param", "whole")


@pytest.fixture
def project(shared, how):
    """The tables as they were at first, and no view."""
    path = shared.root / "changelog.toml"
    settings = path.read_text(encoding="utf-8").partition("[rebuild]")[0]
    vectors = json.dumps(how == "vectors")
    path.write_text(
        f"{settings}[rebuild]\nfollow_seconds = 0.2\ndeletion_vectors = {vectors}\n",
        encoding="utf-8",
    )
    for path in (shared.root / "views").glob("*.*"):
        path.unlink()
    shared.execute("DELETE FROM customers; DELETE FROM orders;" + ROWS)
    shared.capture()
    return shared


@pytest.fixture
def view(project):
    name = f"v{uuid.uuid4().hex[:12]}"
    project.view(f"{name}.sql", TOTALS)
    return name


@pytest.fixture
def run(capsys, monkeypatch, project):
    return partial(rebuild_view, capsys, monkeypatch, project)


def change(project, statements):
    project.execute(statements)
    project.capture()


def row_of(project, view, key):
    rows = delta_rows(str(project.warehouse / view)) or []
    return next((row for row in rows if next(iter(row.values())) == key), None)


VIEWS = {"copy": COPY, "totals": TOTALS, "pairs": PAIRS, "ranked": RANKED, "near": NEAR}
QUESTIONS = {"copy": 0, "totals": 1, "pairs": 1, "ranked": 0, "near": 2}
"""Queries for the keys that differ: one for both tables, but where no equality links these."""


@pytest.mark.parametrize("how", first(1, ["vectors", "whole"]), indirect=True)
@pytest.mark.parametrize("kinds", first(1, ["copy totals", "pairs ranked near"]))
def test_a_refresh_gives_what_a_rebuild_would(project, run, kinds, how, monkeypatch) -> None:
    names = {each: f"{each}{uuid.uuid4().hex[:8]}" for each in kinds.split()}
    for each, name in names.items():
        project.view(f"{name}.sql", VIEWS[each])
    ran = run("--all", "--refresh", "--json", "--verify", "none")
    assert ran.code == 0, ran.err
    assert all("nothing serves yet" in result["origin"] for result in ran.results)
    change(project, CHANGES)
    texts: list[partial] = []

    def noted(spark, frames, text):
        texts.append(text)
        return query(spark, frames, text)

    monkeypatch.setattr(refresh, "query", noted)
    ran = run("--all", "--refresh", "--json")
    assert ran.code == 0, ran.err
    questions = [text for text in texts if text.func.__name__ == KeyLineage.keys_sql.__name__]
    assert len(questions) == sum(QUESTIONS[each] for each in names)
    by_view = {result["view"]: result for result in ran.results}
    for each, name in names.items():
        result = by_view[name]
        assert (result["verified"], result["mismatches"]) == (True, 0), each
        assert result["generation"] == 2
        assert ("merged" in result["origin"]) is (each != "ranked"), result["origin"]
        assert ("vectors" in result["origin"]) is (how == "vectors" and each != "ranked")
        assert each != "ranked" or "window function" in result["origin"]
        assert result["records_read"] < 80, "what changed, not what ever happened"
    plan = run("--all", "--plan", "--from", "checkpoint", "--json")
    assert {each["records_at_most"] for each in plan.results} == {0}


ON_VIEWS = """-- key: customer_id
SELECT a.customer_id, a.amount * 2 AS twice, b.orders
FROM {base} AS a JOIN {base} AS b ON b.customer_id = a.customer_id WHERE a.orders > 0
"""


@pytest.fixture
def stacked(project, view):
    name = f"{view}_top"
    project.view(f"{name}.sql", ON_VIEWS.format(base=view))
    return name


@pytest.mark.matrix
def test_a_view_on_views_is_computed_from_the_log_at_one_frontier(
    project, view, stacked, run
) -> None:
    (plan,) = run(stacked, "--plan", "--json").results
    assert plan["views"] == [view]
    assert (plan["provable"], plan["refresh_whole"]) == (True, f"it reads the view {view}")
    ran = run(stacked, "--json")  # what it reads was never built
    assert (ran.code, ran.results[0]["verified"]) == (0, True), ran.err
    change(project, CHANGES)
    ran = run("--all", "--refresh", "--json")
    assert ran.code == 0, ran.err
    by_view = {result["view"]: result for result in ran.results}
    assert len({result["frontier"]["lsn"] for result in ran.results}) == 1
    assert (by_view[stacked]["verified"], by_view[stacked]["mismatches"]) == (True, 0)
    expected = project.query(
        "SELECT c.customer_id, sum(amount) * 2, count(*) FROM customers AS c"
        " JOIN orders USING (customer_id) GROUP BY 1"
    )
    rows = project.delta(stacked)
    assert {tuple(row.values()) for row in rows} == set(expected)
    explained = run(stacked, "--explain", "3", "--json")
    assert explained.code == 0, explained.err
    assert "orders" in explained.out
    assert "customers" in explained.out


@pytest.mark.matrix
def test_twin_another_query_in_the_proof_refutes_a_view_on_views(
    view, stacked, run, monkeypatch
) -> None:
    """The defect: what is proved lacks a row of the inner view that Spark has."""
    found = inline._body

    def shortened(source: SqlSource) -> str:
        return found(source).replace("GROUP BY", "WHERE c.customer_id <> 3 GROUP BY")

    monkeypatch.setattr(inline, "_body", shortened)
    ran = run(stacked, "--json")
    assert (ran.code, ran.results[0]["mismatches"]) == (3, 1), ran.err


@pytest.mark.matrix
def test_what_serves_is_of_an_older_definition_when_a_view_behind_changes(
    project, view, stacked, run
) -> None:
    assert run(stacked, "--refresh", "--verify", "none").code == 0
    project.view(f"{view}.sql", TOTALS.replace("LEFT JOIN", "JOIN"))
    (plan,) = run(stacked, "--plan", "--json").results
    assert plan["definition_changed"] is True
    assert "+FROM customers AS c JOIN" in plan["definition_diff"]
    ran = run(stacked, "--refresh", "--verify", "none", "--json")
    assert "another than what serves" in ran.results[0]["origin"]


@pytest.mark.matrix
def test_a_parameter_is_shown_and_its_change_is_a_change_of_the_definition(
    project, view, run
) -> None:
    path = project.root / "changelog.toml"
    settings = path.read_text(encoding="utf-8")
    project.view(f"{view}.sql", COPY.replace("> 3", "> :least"))
    assert run(view, "--plan").code == 2  # it has no value
    path.write_text(settings + "[parameters]\nleast = 97.50\n", encoding="utf-8")
    ran = run(view, "--refresh", "--json")
    assert (ran.code, ran.results[0]["verified"], ran.results[0]["rows"]) == (0, True, 5), ran.err
    path.write_text(settings + "[parameters]\nleast = 98.50\n", encoding="utf-8")
    (plan,) = run(view, "--plan", "--json").results
    assert plan["parameters"] == {"least": "98.50"}
    assert plan["definition_changed"] is True
    assert "> 98.50" in plan["definition_diff"]
    assert "parameter least is 98.50" in run(view, "--plan", "--long").err
    (result,) = run(view, "--refresh", "--json").results
    assert "another than what serves" in result["origin"]
    assert (result["verified"], result["rows"]) == (True, 3)


def test_circles_and_names_of_tables_are_refused_before_anything_is_read(
    project, view, stacked, run
) -> None:
    project.view("orders.sql", COPY)
    for words in ([view], [view, "--plan"], [stacked]):
        ran = run(*words)
        assert ran.code == 2
        assert "write public.orders for the table" in " ".join(ran.err.split())
    (project.root / "views" / "orders.sql").unlink()
    project.view(f"{view}.sql", f"-- key: customer_id\nSELECT customer_id FROM {stacked}")
    ran = run("--all", "--plan")
    assert ran.code == 2
    assert "in a circle" in ran.err


@pytest.mark.matrix
def test_what_did_not_change_gets_no_generation(project, view, run) -> None:
    assert run(view, "--refresh").code == 0
    (same,) = run(view, "--refresh", "--json").results
    assert (same["origin"], same["generation"]) == ("refresh: unchanged", 1)
    again = run(view, "--from", "checkpoint", "--json")
    assert (again.code, again.results[0]["verified"]) == (0, True)
    assert (again.results[0]["origin"], again.results[0]["records_read"]) == ("checkpoint", 0)
    assert run(view, "--json").results[0]["origin"] == "start"


@pytest.mark.matrix
@BOTH
def test_what_rows_were_is_known_after_layers_are_folded(project, view, run, monkeypatch) -> None:
    monkeypatch.setattr(advancer, "MANY_LAYERS", 1)
    assert run(view, "--refresh").code == 0
    for customer in (2, 3, 4):
        change(project, f"UPDATE orders SET customer_id = {customer} WHERE order_id = 20")
        ran = run(view, "--refresh", "--json")
        assert ran.code == 0, ran.err
        assert "merged" in ran.results[0]["origin"]
        assert ran.results[0]["verified"] is True


def nothing_before(self, position, keys):
    """The defect: only what rows are now is asked, not what they were."""
    return keys.where("false")


def without_deleted(sound):
    """The defect: what was deleted is not taken out of the rows that serve."""
    return lambda self, records: sound(self, records.where("value IS NOT NULL"))


@pytest.mark.matrix
@BOTH
def test_a_refresh_that_forgets_old_rows_is_refuted(project, view, run, monkeypatch) -> None:
    copied = f"{view}_copy"
    project.view(f"{copied}.sql", COPY)
    assert run("--all", "--refresh").code == 0
    change(project, "UPDATE orders SET customer_id = 2 WHERE order_id = 20")
    with monkeypatch.context() as patched:
        patched.setattr(StoredRecords, "before", nothing_before)
        ran = run(view, "--refresh", "--json")
        assert (ran.code, ran.results[0]["mismatches"]) == (3, 1), ran.err
    change(project, "DELETE FROM orders WHERE order_id = 21")
    with monkeypatch.context() as patched:
        patched.setattr(StoredRecords, "decoded_keys", without_deleted(StoredRecords.decoded_keys))
        ran = run(copied, "--refresh", "--json")
        assert (ran.code, ran.results[0]["mismatches"]) == (3, 1), ran.err
    assert run("--all", "--refresh").code == 0


@pytest.mark.matrix
def test_an_older_state_is_given_while_it_is_exact(project, view, run) -> None:
    before = run(view, "--json").results[0]["frontier"]
    change(project, "UPDATE customers SET name = 'later' WHERE customer_id = 1")
    assert run(view).code == 0
    assert row_of(project, view, 1)["name"] == "later"
    for asked in (before["lsn"], before["ts"]):
        ran = run(view, "--as-of", asked, "--json")
        assert ran.code == 0, ran.err
        assert ran.results[0]["frontier"]["lsn"] == before["lsn"]
        assert ran.results[0]["verified"] is True
        assert row_of(project, view, 1)["name"] == "name 1"
    for asked in ("0/1", "FFFFFFFF/0", "1999-12-31"):
        refused = run(view, "--as-of", asked, "--json")
        assert refused.code == 4, refused.err
        assert "the nearest that can be given: --as-of" in refused.results[0]["error"]
    assert run(view, "--as-of", "yesterday").code == 2
    assert run(view, "--as-of", before["lsn"], "--refresh").code == 2


@pytest.mark.matrix
def test_records_are_not_quarantined_in_checkpoints(project, view, run) -> None:
    for words in (["--refresh"], ["--from", "checkpoint"]):
        ran = run(view, *words, "--on-bad-record", "quarantine", "--json")
        assert ran.code == 2, ran.err
        assert "checkpoints do not keep records" in ran.results[0]["error"]
    assert run(view, "--refresh", "--explain", "1").code == 2
    assert run(view, "--as-of", "yesterday").code == 2


FORMS = [("json", "row"), ("json", "flat"), ("json", "nested"), ("avro", "nested")]


@pytest.mark.matrix
@pytest.mark.parametrize(("output", "envelope"), FORMS)
def test_a_log_of_any_form_is_refreshed(
    stack, tmp_path, capsys, monkeypatch, spark, output, envelope
) -> None:
    names = {"copy": COPY, "totals": TOTALS}
    settings = f'output_format = "{output}"\nenvelope = "{envelope}"'
    with captured_database(stack, tmp_path, TABLES + ROWS, capture=settings) as (project, _):
        for name, text in names.items():
            project.view(f"{name}.sql", text)
        assert rebuild_view(capsys, monkeypatch, project, "--all", "--refresh").code == 0
        change(project, CHANGES)
        ran = rebuild_view(capsys, monkeypatch, project, "--all", "--refresh", "--json")
        assert ran.code == 0, ran.err
        for result in ran.results:
            assert (result["verified"], result["mismatches"]) == (True, 0)
            assert "merged" in result["origin"], result["origin"]


def prepared(project, view, run):
    assert run(view, "--refresh").code == 0
    change(project, CHANGES)


def is_refreshed(project, view, run):
    """The invariant of a kill: the next run brings all changes, each once."""
    ran = run(view, "--refresh", "--json")
    assert ran.code == 0, ran.err
    assert row_of(project, view, 3)["name"] == "renamed"
    assert row_of(project, view, 21) is not None
    assert row_of(project, view, 5) is None
    lsns = [
        row["lsn"]
        for row in run("--history", view, "--json").results
        if row["state"] in {"published", "retired"} and row["lsn"]
    ]
    assert len(lsns) == len(set(lsns)), "a frontier was applied twice"


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("stage", "how"),
    [(stage, "whole") for stage in ("seal", "scan", "recheck", "write", "publish", "record")]
    + [(stage, "vectors") for stage in ("write", "publish", "record")],
    indirect=["how"],
)
def test_a_refresh_that_is_killed_is_finished_by_the_next(project, view, run, stage) -> None:
    prepared(project, view, run)
    assert project.crash(view, "--kill", stage, also=["--refresh"]).returncode == -signal.SIGKILL
    is_refreshed(project, view, run)


@pytest.mark.slow
@pytest.mark.matrix
def test_the_kill_would_find_a_checkpoint_that_counts_too_early(project, view, run) -> None:
    prepared(project, view, run)
    killed = project.crash(
        view, "--kill", "scan", "--defect", "seal_before_the_scan", also=["--refresh"]
    )
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(AssertionError):
        is_refreshed(project, view, run)


@contextmanager
def following(project, view, *options):
    """Follow in a process of its own; returns it and the results that it has told so far."""
    words = [sys.executable, "-m", "tests.support.crashing_rebuild", *options]
    words += ["--", view, "--follow", "--json", "--verify", "sample"]
    words += ["--project", str(project.root)]
    results: list[dict] = []
    told: list[str] = []
    with subprocess.Popen(
        words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        stdout, stderr = process.stdout, process.stderr
        assert stdout is not None
        assert stderr is not None
        readers = [
            threading.Thread(target=lambda: results.extend(map(json.loads, stdout)), daemon=True),
            threading.Thread(target=lambda: told.extend(stderr), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            yield process, results
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for reader in readers:
                reader.join(10)
            print(*told, sep="", file=sys.stderr)  # pytest shows it where the test fails


@pytest.mark.slow
@pytest.mark.matrix
@BOTH
def test_following_applies_each_change_once_and_ends_cleanly(project, view, run) -> None:
    assert run(view, "--refresh").code == 0
    with following(project, view) as (process, results):
        wait_until(lambda: len(results) == 1, 180, "the first round")
        assert results[0]["origin"] == "refresh: unchanged"
        change(project, CHANGES)
        wait_until(lambda: row_of(project, view, 3)["name"] == "renamed", 120, "the first change")
        change(project, "UPDATE customers SET name = 'again' WHERE customer_id = 3")
        wait_until(lambda: row_of(project, view, 3)["name"] == "again", 120, "the second change")
        assert run(view, "--refresh").code == 5
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
    numbers = [result["generation"] for result in results]
    assert numbers == sorted(numbers)
    assert all("merged" in result["origin"] for result in results[1:])
    is_refreshed_again = run(view, "--refresh", "--json").results[0]
    assert is_refreshed_again["origin"] == "refresh: unchanged"


def is_applied_once(project, view, run):
    """The invariant of following through a kill behind the swap."""
    published = [row for row in project.history(view) if row[1] == "published"]
    assert len(published) == 2, published


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("defect", [None, "forget_what_serves"])
def test_a_frontier_is_applied_once_also_through_a_kill(project, view, run, defect) -> None:
    prepared(project, view, run)
    with following(project, view, "--kill", "record") as (process, _):
        assert process.wait(240) == -signal.SIGKILL
    seeded = ["--defect", defect] if defect else []
    with following(project, view, *seeded) as (process, results):
        wait_until(lambda: len(results) == 1, 180, "the first round after the kill")
        process.terminate()
        assert process.wait(60) == 0
    assert row_of(project, view, 3)["name"] == "renamed"
    if defect is None:
        is_applied_once(project, view, run)
    else:
        with pytest.raises(AssertionError):
            is_applied_once(project, view, run)
