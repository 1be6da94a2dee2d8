"""`rebuild-view` on the real servers: what readers see, whatever happens to a rebuild."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from io import StringIO
from pathlib import Path

import httpx
import pytest
import redis
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from deltalake import DeltaTable
from pyspark.sql.functions import col, when
from rich.console import Console

from changelog.contract.base.headers import decode_headers
from changelog.runtime.tls_trust import authorities
from replay.base.clock import clock_ms
from replay.cut import cut
from replay.decode.schemas import SchemaReader
from replay.pipeline.replay import open_replay
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.log_reader import LogReader
from tests.support.matrix import first
from views.generations.history import GenerationHistory
from views.generations.lock import locked
from views.generations.place import LockPlace
from views.generations.served import Served, served_of
from views.rebuild import rebuild
from views.rebuild.run import proof

REPOSITORY = Path(__file__).parents[2]
TOTALS = """-- key: customer_id
-- sinks: delta, search, cache
-- description: What each customer ordered.
SELECT c.customer_id, c.name, count(o.order_id) AS orders, sum(o.amount) AS amount
FROM public.customers AS c LEFT JOIN orders AS o ON o.customer_id = c.customer_id
GROUP BY c.customer_id, c.name
"""
LEAN = TOTALS.replace("delta, search, cache", "delta, cache")
LARGE = """
from pyspark.sql import functions as F
from views import view

@view(key="order_id", tables=["orders"])
def large(orders):
    '''Orders above ten.'''
    return orders.where(F.col("amount") > 10).select("order_id", "amount")
"""


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    """One captured database and project for the module; each test has a view of its own."""
    with captured_database(
        stack,
        tmp_path_factory.mktemp("project"),
        """
        CREATE TABLE customers (customer_id int PRIMARY KEY, name text NOT NULL);
        CREATE TABLE orders (
            order_id int PRIMARY KEY,
            customer_id int NOT NULL REFERENCES customers,
            amount numeric(10, 2) NOT NULL
        );
        INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(1, 20) AS n;
        INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5 FROM generate_series(1, 200) AS n;
        """,
    ) as made:
        yield made


@pytest.fixture
def project(shared):
    found, _ = shared
    for path in (found.root / "views").glob("*.*"):
        path.unlink()
    return found


@pytest.fixture
def view(project, request):
    """The name of a view of this test alone, over all three sinks."""
    name = f"v{uuid.uuid4().hex[:12]}"
    project.view(f"{name}.sql", TOTALS)
    return name


@pytest.fixture
def run(capsys, monkeypatch, project):
    return partial(rebuild_view, capsys, monkeypatch, project)


def new_name(project, customer, name):
    project.execute(f"UPDATE customers SET name = '{name}' WHERE customer_id = {customer}")
    project.capture()


def served_names(project, endpoints, view):
    """Return customer 1's name as each sink serves it at its stable place."""
    with closing(redis.Redis.from_url(endpoints.cache, decode_responses=True)) as cache:
        current = str(cache.get(f"{view}:current"))
        entry = str(cache.get(f"{view}:{current}:1"))
    names = {project.delta(view)[0]["name"], json.loads(entry)["name"]}
    if "search" not in (project.root / "views" / f"{view}.sql").read_text():
        return names
    document = httpx.get(f"{endpoints.search}/{view}/_doc/1", verify=authorities()).json()
    return names | {document["_source"]["name"]}


def test_a_rebuild_serves_verified_rows_at_every_sink(project, endpoints, view, run) -> None:
    new_name(project, 1, "Ann")
    ran = run(view, "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["view"], result["generation"], result["rows"]) == (view, 1, 20)
    assert (result["verified"], result["mismatches"], result["published"]) == (True, 0, True)
    assert result["verdict"].startswith("exact")
    assert set(result["frontier"]) == {"epoch", "lsn", "ts"}
    assert result["records_read"] >= 220
    assert result["tombstones"] == 0
    assert {"plan", "session", "write", "verify", "publish", "total"} <= set(result["seconds"])
    assert served_names(project, endpoints, view) == {"Ann"}
    assert project.history(view) == [(1, "sealed"), (1, "published")]
    assert "refuted" not in ran.err


@pytest.mark.matrix
def test_several_views_share_a_run_and_python_views_are_certified_by_their_inputs(
    project, view, run
) -> None:
    project.view("large.py", LARGE)
    ran = run("--all", "--json")
    assert ran.code == 0, ran.err
    by_view = {result["view"]: result for result in ran.results}
    assert by_view["large"]["rows"] == 180
    assert by_view["large"]["published"] is True
    assert (by_view["large"]["verified"], by_view["large"]["mismatches"]) == (None, 0)
    assert "inputs" in by_view["large"]["certificates"]["delta"]["notes"][0]
    assert by_view["large"]["certificates"]["delta"]["rows_expected"] == 200
    assert by_view["large"]["frontier"] == by_view[view]["frontier"]
    assert not (project.warehouse / "_verify").exists() or not any(
        (project.warehouse / "_verify").iterdir()
    )


@pytest.mark.matrix
def test_explain_names_the_records_of_a_row_and_those_that_they_superseded(
    project, view, run, kafka, registry, shared
) -> None:
    _, prefix = shared
    new_name(project, 3, "Once")
    new_name(project, 3, "Twice")
    ran = run(view, "--explain", "3", "--json")
    assert ran.code == 0, ran.err
    (found,) = ran.results
    assert found["row"] == {"customer_id": "3", "name": "Twice", "orders": "10", "amount": "460.00"}
    assert found["fields"]["name"]["from"] == [
        {"source": "c", "topic": f"{prefix}.customers", "column": "name"}
    ]
    assert found["fields"]["amount"]["expression"] == "SUM(`o`.`amount`)"
    customers, orders = found["sources"]
    assert (customers["count"], orders["count"]) == (1, 10)
    (record,) = customers["records"]
    assert record["superseded_count"] == len(record["superseded"]) == 2
    reader = LogReader(kafka, registry)
    there = {
        (message.partition(), message.offset()): (
            reader.decode(message.value()),
            str(decode_headers(message.headers()).position),
        )
        for message in reader.messages(f"{prefix}.customers", [1_000_000, 1_000_000])
    }
    told = [there[place["partition"], place["offset"]] for place in (record, *record["superseded"])]
    assert [row["name"] for row, _ in told] == ["Twice", "Once", "name 3"]
    assert [position for _, position in told] == [
        place["position"] for place in (record, *record["superseded"])
    ]
    assert {order["key"]["order_id"] for order in orders["records"]} == {
        str(number) for number in range(2, 201, 20)
    }

    people = run(view, "--explain", "3")
    assert "name = Twice: c.name" in people.err
    assert "superseded: partition" in people.err
    none = run(view, "--explain", "404", "--json")
    assert none.code == 1
    assert "has no row with the key customer_id = 404" in none.results[0]["error"]


@pytest.mark.matrix
def test_explain_says_what_it_cannot_trace(project, run) -> None:
    project.view(
        "tops.sql",
        "-- key: customer_id\nSELECT customer_id, sum(amount) AS s FROM orders "
        "GROUP BY ROLLUP (customer_id)",
    )
    project.view("large.py", LARGE)
    tops = run("tops", "--explain", "1", "--json").results[0]
    assert tops["row"]["customer_id"] == "1"
    assert [each["count"] for each in tops["sources"]] == [None]
    assert "ROLLUP" in tops["notes"][0]
    assert tops["fields"]["s"]["from"][0]["column"] == "amount"
    large = run("large", "--explain", "150", "--json").results[0]
    assert large["sources"][0]["records"][0]["key"] == {"order_id": "150"}
    assert "a function builds this view" in large["notes"][0]
    assert run("large", "tops", "--explain", "1").code == 2


@pytest.mark.matrix
def test_a_rollback_serves_the_generation_before_in_every_sink(
    project, endpoints, view, run
) -> None:
    new_name(project, 1, "Before")
    assert run(view).code == 0
    new_name(project, 1, "After")
    assert run(view).code == 0
    assert served_names(project, endpoints, view) == {"After"}
    ran = run(view, "--rollback", "--json")
    assert ran.code == 0, ran.err
    assert ran.results[0]["generation"] == 1
    assert served_names(project, endpoints, view) == {"Before"}
    again = run(view, "--rollback", "--json")
    assert again.code == 1
    assert "no older generation" in again.results[0]["error"]
    assert run(view).code == 0
    assert served_names(project, endpoints, view) == {"After"}
    assert project.history(view)[-3:] == [(3, "sealed"), (3, "published"), (2, "retired")]


@pytest.mark.matrix
def test_old_generations_are_removed_beyond_those_kept(project, view, run) -> None:
    for _ in range(3):
        assert run(view, "--keep", "1", "--verify", "none").code == 0
    there = sorted(p.name for p in (project.warehouse / view / "_generations").iterdir())
    assert there == ["000003"]
    assert project.history(view)[-1] == (2, "retired")


class Plants:
    """A sink that changes a row on its way in."""

    def __init__(self, sink):
        self._sink = sink

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def write(self, rows):
        wrong = when(col("customer_id") == 7, "wrong").otherwise(col("name"))
        self._sink.write(rows.withColumn("name", wrong))


def plant_a_wrong_row(monkeypatch):
    def planted(spec, settings, spark):
        sinks = dict(served_of(spec, settings, spark).sinks)
        return Served(spec.name, {**sinks, "cache": Plants(sinks["cache"])})

    original = rebuild.RebuildRun
    monkeypatch.setattr(
        "views.command.RebuildRun", lambda *a, **k: original(*a, **k, make_served=planted)
    )


def test_a_refuted_generation_is_never_published(
    project, endpoints, view, run, monkeypatch
) -> None:
    new_name(project, 1, "Old")
    assert run(view).code == 0
    new_name(project, 1, "New")
    plant_a_wrong_row(monkeypatch)
    ran = run(view, "--json")
    assert ran.code == 3, ran.err
    (result,) = ran.results
    assert (result["verified"], result["mismatches"], result["published"]) == (False, 1, False)
    assert result["exit_code"] == 3
    (difference,) = result["certificates"]["cache"]["differences"]
    assert difference["key"] == {"customer_id": "7"}
    assert "wrong" in difference["served"]
    assert served_names(project, endpoints, view) == {"Old"}
    assert project.history(view)[-1] == (2, "refuted")
    with closing(redis.Redis.from_url(endpoints.cache)) as cache:
        assert not list(cache.scan_iter(f"{view}:2:*"))


def reader_is_untouched(project, endpoints, view):
    """The invariant of a kill before publishing."""
    assert served_names(project, endpoints, view) == {"Old"}


@pytest.mark.matrix
@pytest.mark.slow
def test_a_kill_before_publishing_leaves_readers_untouched(project, endpoints, view, run) -> None:
    new_name(project, 1, "Old")
    assert run(view, "--verify", "none").code == 0
    new_name(project, 1, "New")
    assert project.crash(view, "--kill", "publish").returncode == -signal.SIGKILL
    reader_is_untouched(project, endpoints, view)
    assert (project.warehouse / view / "_generations" / "000002").exists()
    ran = run(view, "--json")
    assert ran.code == 0, ran.err
    assert ran.results[0]["generation"] == 3
    assert served_names(project, endpoints, view) == {"New"}
    assert not (project.warehouse / view / "_generations" / "000002").exists()


@pytest.mark.matrix
@pytest.mark.slow
def test_the_kill_before_publishing_would_find_an_early_swap(project, endpoints, view, run) -> None:
    project.view(f"{view}.sql", LEAN)
    new_name(project, 1, "Old")
    assert run(view, "--verify", "none").code == 0
    new_name(project, 1, "New")
    crashing = ("--kill", "publish", "--defect", "publish_early")
    killed = project.crash(view, *crashing, also=["--verify", "none"])
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(AssertionError):
        reader_is_untouched(project, endpoints, view)


def publishing_is_on_record(project, view, generation):
    """The invariant of a kill after publishing, once another run has begun and ended."""
    rows = [row for row in project.history(view) if row[0] == generation]
    assert (generation, "published") in rows


@pytest.mark.matrix
@pytest.mark.slow
def test_a_kill_after_publishing_is_put_on_record_by_the_next_run(
    project, endpoints, view, run, monkeypatch
) -> None:
    twin = f"{view}_twin"
    project.view(f"{view}.sql", LEAN)
    project.view(f"{twin}.sql", LEAN)
    new_name(project, 1, "Old")
    assert run(view, twin, "--verify", "none").code == 0
    new_name(project, 1, "New")
    killed = project.crash(view, "--kill", "record", also=[twin])
    assert killed.returncode == -signal.SIGKILL
    for each in (view, twin):
        assert served_names(project, endpoints, each) == {"New"}
        assert project.history(each)[-1] == (2, "sealed")
    with monkeypatch.context() as patched:  # a run that does not settle
        patched.setattr(rebuild, "settle", lambda *_, **__: None)
        assert run(twin, "--verify", "none", "--keep", "3").code == 0
        with pytest.raises(AssertionError):
            publishing_is_on_record(project, twin, 2)
    assert run(view, "--verify", "none").code == 0
    publishing_is_on_record(project, view, 2)
    history = run("--history", view, "--json").results
    certified = next(row for row in history if row["generation"] == 2)
    assert certified["verified"] is True


@pytest.mark.matrix
@pytest.mark.slow
def test_sigterm_ends_a_rebuild_cleanly(project, endpoints, view, run) -> None:
    new_name(project, 1, "Old")
    assert run(view).code == 0
    words = [sys.executable, "-m", "tests.support.crashing_rebuild", "--pause", "verify"]
    words += ["--", view, "--json", "--project", str(project.root)]
    with subprocess.Popen(
        words, cwd=REPOSITORY, stdin=-1, stdout=-1, stderr=-1, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        while "at verify" not in process.stderr.readline():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)
        while "stopping" not in process.stderr.readline():
            assert process.poll() is None
        out, err = process.communicate("\n", timeout=120)
    assert process.returncode == 1, err
    (result,) = [json.loads(line) for line in out.splitlines()]
    assert "asked to stop" in result["error"]
    assert (result["exit_code"], result["published"]) == (1, False)
    reader_is_untouched(project, endpoints, view)
    assert not (project.warehouse / view / "_generations" / "000002").exists()
    assert project.history(view)[-1] == (2, "failed")


def test_two_rebuilds_of_one_view_at_once_are_one_too_many(project, view, run) -> None:
    with locked(LockPlace(project.root), [view]):
        ran = run(view, "--json")
    assert ran.code == 5
    (result,) = ran.results
    assert result["view"] == view
    assert f"process {os.getpid()} on " in result["error"]
    assert result["exit_code"] == 5
    assert not (project.warehouse / view).exists()


def test_a_plan_tells_and_touches_nothing(project, view, run, monkeypatch) -> None:
    def never(*_):
        raise AssertionError("a plan needs no Spark")

    monkeypatch.setattr("replay.spark.session.session", never)
    monkeypatch.setattr(rebuild, "session", never)
    monkeypatch.setattr("views.rebuild.plan.plan.open_replay", never)
    before = sorted(project.root.rglob("*"))
    ran = run(view, "--plan", "--json")
    assert ran.code == 0, ran.err
    (plan,) = ran.results
    assert (plan["generation"], plan["serving"], plan["sinks"]) == (
        1,
        None,
        ["delta", "search", "cache"],
    )
    assert set(plan["topics"]) == {"customers", "orders"}
    assert plan["records_at_most"] >= 220
    assert plan["verdict"].startswith("exact")
    assert plan["text"].startswith("exact now (until ")
    verdicts = plan["verdicts"]
    assert set(verdicts) == set(plan["topics"].values())
    orders = verdicts[plan["topics"]["orders"]]
    assert (orders["verdict"], orders["records"], orders["density"]) == ("exact", 200, 1.0)
    text, whole = run(view, "--plan"), run(view, "--plan", "--long")
    assert len([line for line in text.err.splitlines() if line.startswith((view, " "))]) <= 3
    for each in (text, whole):
        assert "writes generation 1 to delta, search, cache; nothing serves yet" in each.err
        assert "verdict:" in each.err
    assert all(topic in whole.err for topic in plan["topics"].values())
    assert "planning" not in text.err, "no bar without a terminal"
    for words in ((), ("--json",)):
        file = StringIO()
        terminal = Console(file=file, force_terminal=True, width=60)
        monkeypatch.setattr("changelog.runtime.terminal.console", terminal)
        assert run(view, "--plan", *words).code == 0
        said = file.getvalue()
        assert bool(re.search(r"planning: .*(?<!\d)(\d+) of \1, ", said)) == (not words), said
    assert sorted(project.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("-- key: a\nSELECT a FROM", "the SQL does not parse"),
        ("-- key: a\nSELECT a FROM nowhere", "which is not captured"),
        ("-- key: a\nSELECT a FROM orders", 'reads a column "a", which none of its tables has'),
        ("-- key: a\nSELECT explode(array(1)) + 1 AS a FROM orders", "Spark does not accept"),
        ("-- key: a\nSELECT order_id FROM orders", "has no column a, which its key names"),
        ("-- key: a\n-- sinks: nothing\nSELECT order_id AS a FROM orders", 'no sink "nothing"'),
        ("-- key: a\nSELECT order_id AS a, 1 AS b, 2 AS B FROM orders", "two columns called"),
    ],
)
def test_a_view_that_cannot_be_is_a_configuration_error(project, run, sql, words) -> None:
    project.view("bad.sql", sql)
    ran = run("bad", "--json", *(["--verify", "none"] if "explode" in sql else []))
    assert ran.code == 2, ran.err
    assert [result["view"] for result in ran.results] == ["bad"]
    assert words in ran.results[0]["error"]
    assert "Traceback" not in ran.err
    assert not (project.warehouse / "bad").exists() or not list(
        (project.warehouse / "bad").glob("_delta_log/*.json")
    )


@pytest.mark.matrix
def test_a_parent_and_its_children_are_one_view_and_alone_it_is_warned_of(project, run) -> None:
    project.execute(
        """
        CREATE TABLE parent (id int PRIMARY KEY, text text);
        CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent);
        INSERT INTO parent VALUES (1, 'own'), (2, 'own too');
        INSERT INTO child VALUES (1, 'of the child', 5), (3, 'another', 6);
        """
    )
    project.capture()
    project.view("bare.sql", "-- key: id\n-- sinks: delta\nSELECT id, text FROM parent")
    project.view(
        "whole.sql",
        "-- key: origin, id\n-- sinks: delta\nSELECT 'parent' AS origin, id, text FROM parent\n"
        "UNION ALL\nSELECT 'child' AS origin, id, text FROM child",
    )
    found = {each["view"]: each for each in run("bare", "whole", "--json").results}
    assert [each["verified"] for each in found.values()] == [True, True]
    assert found["whole"]["warnings"] == []
    (warning,) = found["bare"]["warnings"]
    assert "public.parent has only its own rows, without those of public.child" in warning
    notes = {
        row.view: row.note
        for row in GenerationHistory(str(project.warehouse)).rows(["bare", "whole"])
    }
    assert (warning in notes["bare"], notes["whole"]) == (True, "")
    everything = project.query("SELECT tableoid::regclass::text, id, text FROM parent")
    assert sorted(tuple(row.values()) for row in project.delta("whole")) == sorted(everything)
    assert len(project.delta("bare")) == 2


@pytest.mark.matrix
def test_rows_that_share_a_key_fail_the_rebuild(project, run) -> None:
    project.view("twice.sql", "-- key: customer_id\nSELECT customer_id, amount FROM orders")
    ran = run("twice", "--json")
    assert ran.code == 1, ran.err
    assert "share one key" in ran.results[0]["error"]
    assert project.history("twice")[-1][1] == "failed"


def test_a_log_that_may_have_lost_rows_is_refused(project, shared, kafka, view, run) -> None:
    _, prefix = shared
    set_policy(kafka, f"{prefix}.orders", "compact,delete")
    try:
        ran = run(view, "--json")
        plan = run(view, "--plan")
        project.view("beside.sql", "-- key: customer_id\nSELECT customer_id FROM customers")
        both = run(view, "beside", "--plan", "--json")
    finally:
        set_policy(kafka, f"{prefix}.orders", "compact")
    assert (ran.code, plan.code, both.code) == (4, 4, 4)
    verdicts = {each["view"]: each["verdict"] for each in both.results if each.get("plan")}
    assert verdicts["beside"].startswith("exact"), "what another view reads does not matter"
    assert verdicts[view] == "not-exact"
    assert "cleanup.policy" in ran.results[0]["error"]
    assert not (project.warehouse / view).exists()
    assert run(view, "--verify", "none").code == 0


@pytest.mark.matrix
@pytest.mark.parametrize("more", first(1, [(), ["--refresh"]]))
def test_a_rebuild_freezes_once_and_looks_each_schema_up_once(view, run, monkeypatch, more) -> None:
    asked: Counter[str] = Counter()

    def counted(owner, name, what):
        original = getattr(owner, name)

        def counting(*arguments, **named):
            asked[what(arguments)] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    counted(cut, "broker_facts", lambda _: "the brokers")
    counted(SchemaReader, "_versions", lambda arguments: arguments[1])
    assert run(view, "--verify", "none", *more).code == 0
    subjects = {name for name in asked if name.endswith(("-key", "-value"))}
    assert len(subjects) == 4
    assert asked == Counter([*subjects, "the brokers"])


def late_after(monkeypatch, owner, step):
    """Let a rebuild's clock stand eight days later once a step of it is done."""
    original, is_done = getattr(owner, step), threading.Event()

    def stepped(*arguments):
        given = original(*arguments)
        is_done.set()
        return given

    def clock():
        return clock_ms() + (8 * 24 * 3_600_000 if is_done.is_set() else 0)

    monkeypatch.setattr(owner, step, stepped)
    monkeypatch.setattr("views.rebuild.plan.plan.open_replay", partial(open_replay, clock=clock))


def test_a_rebuild_that_outlasts_its_deadline_is_not_published(
    project, view, run, monkeypatch
) -> None:
    late_after(monkeypatch, rebuild.RebuildRun, "_build")
    ran = run(view, "--json")
    assert ran.code == 4
    assert "delete.retention.ms" in ran.results[0]["error"]
    assert ran.results[0]["published"] is False
    assert project.history(view)[-1] == (1, "failed")
    assert not DeltaTable.is_deltatable(str(project.warehouse / view))


@pytest.mark.matrix
def test_twin_without_the_checks_it_is_published(project, view, run, monkeypatch) -> None:
    late_after(monkeypatch, rebuild.RebuildRun, "_build")
    monkeypatch.setattr("replay.pipeline.replay.recheck", lambda *_: 60_000)
    assert run(view, "--json", "--verify", "none").code == 0
    assert DeltaTable.is_deltatable(str(project.warehouse / view))


@pytest.mark.matrix
def test_a_difference_that_is_found_too_late_refutes_nothing(
    project, view, run, monkeypatch
) -> None:
    late_after(monkeypatch, proof, "judged")
    plant_a_wrong_row(monkeypatch)
    ran = run(view, "--json")
    assert ran.code == 4, ran.out
    assert (ran.results[0]["verified"], ran.results[0]["published"]) == (None, False)
    assert project.history(view)[-1] == (1, "failed")


def set_policy(kafka, topic, value):
    entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(kafka.client_config())
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)


@pytest.mark.matrix
def test_a_run_has_a_time_limit_and_tells_that_it_failed(project, view, run, tmp_path) -> None:
    """What a scheduler starts: it ends in time, tells of it, and the next one does the rest."""
    heard, metrics = tmp_path / "heard.json", tmp_path / "views.prom"
    told = ("--on-failure", f"cat > {heard}", "--metrics-file", str(metrics))
    ran = run(view, "--timeout", "0.001", *told, "--json")
    assert ran.code == 1
    assert "ended by its time limit" in ran.results[0]["error"]
    said = json.loads(heard.read_text())
    assert (said["failed"], said["exit_code"]) == ([view], 1)
    assert "changelog_view_published_timestamp_seconds{" not in metrics.read_text()
    heard.unlink()
    assert run(view, "--timeout", "600", *told, "--json").code == 0
    assert not heard.exists()
    text = metrics.read_text()
    assert f'changelog_view_verified{{view="{view}"}} 1.0' in text
    assert f'changelog_view_published_timestamp_seconds{{view="{view}"}}' in text


@pytest.mark.matrix
def test_what_a_run_had_done_that_was_cut_off_is_left_out(project, view, run, endpoints) -> None:
    assert run(view, "--json").code == 0
    again = run(view, "--max-age", "3600", "--json")
    assert (again.code, again.results) == (0, [])
    assert "left out" in again.err
    assert [row[0] for row in project.history(view) if row[1] == "published"] == [1]
    assert run(view, "--max-age", "0", "--json").results[0]["generation"] == 2
    project.view(f"{view}.sql", TOTALS.replace("ordered.", "has ordered."))
    assert run(view, "--max-age", "3600", "--json").results[0]["generation"] == 3
    with closing(redis.Redis.from_url(endpoints.cache)) as cache:
        cache.delete(*cache.keys(f"{view}*"))
    assert run(view, "--max-age", "3600", "--json").results[0]["generation"] == 4


@pytest.mark.matrix
def test_a_run_waits_for_another_one_as_long_as_it_may(project, view, run) -> None:
    held = ExitStack()
    held.enter_context(locked(LockPlace(project.root), [view]))
    with held:
        assert run(view, "--wait", "0.1", "--json").code == 5
        timer = threading.Timer(2, held.close)
        timer.start()
        ran = run(view, "--wait", "300", "--json")
        timer.join()
    assert (ran.code, ran.results[0]["published"]) == (0, True)
    assert "waits for a lock" in ran.err
