"""docs/recover.md, what happens to rebuilds: each fault is caused, seen and mended by the page."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import closing, suppress
from dataclasses import replace

import httpx
import pytest
import redis
from deltalake import DeltaTable

from changelog.config import load_project
from changelog.runtime.tls_trust import authorities
from tests.integration.recover.orders import VIEW
from tests.support.recipes import asides, recipe
from tests.support.small_disk import small_disk
from views.operate.teardown import look


@pytest.fixture
def served_orders(orders):
    """A view that may be in sinks that other tests use too."""
    yield orders
    found = look(load_project(orders.project.root))
    found.carry_out(lambda part: part.kind == "views")
    assert found.findings.exit_code == 0


@pytest.fixture
def cache(endpoints):
    with closing(redis.Redis.from_url(endpoints.cache, decode_responses=True)) as made:
        yield made


def cached(cache):
    """Return the generation that the cache serves, and its name of order 10."""
    generation = int(cache.get(f"{VIEW}:current"))
    return generation, json.loads(cache.get(f"{VIEW}:{generation}:10"))["name"]


def states(orders):
    return dict(orders.project.history(VIEW))


@pytest.mark.matrix
def test_a_search_server_refuses_a_row(served_orders, endpoints):
    orders, told = served_orders, recipe("A search server refuses a row")
    orders.view("delta", "search")
    mapping = {"mappings": {"properties": {"name": {"type": "keyword"}}}}
    strict = {"mappings": {"properties": {"name": {"type": "integer"}}}}
    orders.project.view(f"{VIEW}.search.json", json.dumps(strict))
    orders.project.execute("UPDATE orders SET name = id::text")
    orders.rename("no number")
    failed = orders.run("rebuild-view --all")
    assert (failed.code,) == told.codes
    assert told.is_seen_in(failed.said)
    for command in told.commands:
        orders.done(command)
    assert found(endpoints) == {
        number: name for number, name in orders.source().items() if number != 10
    }
    refused = DeltaTable(str(orders.project.warehouse / "_refused")).to_pyarrow_table().to_pylist()
    assert [json.loads(row["key"]) for row in refused] == [{"id": 10}]
    # Or the mapping takes the value.
    orders.project.view(f"{VIEW}.search.json", json.dumps(mapping))
    orders.is_proved()
    assert found(endpoints) == orders.source()


def found(endpoints):
    """Return the documents that readers of the index find."""
    url = f"{endpoints.search}/{VIEW}/_search"
    answer = httpx.post(url, json={"size": 100}, verify=authorities()).raise_for_status()
    hits = [hit["_source"] for hit in answer.json()["hits"]["hits"]]
    return {hit["id"]: str(hit["name"]) for hit in hits}


@pytest.mark.matrix
def test_a_row_that_somebody_alters_in_the_sink_is_found(served_orders, cache):
    orders, told = served_orders, recipe("A wrong row in a view")
    orders.view("delta", "cache")
    orders.is_proved()
    orders.rename("new")
    with orders.rebuilding("--pause", "verify") as rebuild:
        rebuild.reached("verify")
        altered = json.loads(cache.get(f"{VIEW}:2:10"))
        cache.set(f"{VIEW}:2:10", json.dumps({**altered, "name": "altered"}))
        ended = rebuild.go_on()
    assert (ended.code,) == told.codes
    assert told.is_seen_in(ended.said)
    assert cached(cache) == (1, "order 10")
    assert states(orders)[2] == "refuted"
    explain, again = told.commands
    assert "new" in orders.done(explain)
    orders.done(again)
    assert cached(cache) == (3, "new")
    orders.is_proved()


@pytest.mark.matrix
@pytest.mark.parametrize("stage", ["verify", "publish"])
def test_a_rebuild_that_is_killed_before_publishing(orders, stage):
    told = recipe("A rebuild is killed before publishing")
    orders.view("delta")
    orders.is_proved()
    before = orders.served()
    orders.rename("new")
    orders.crash("--kill", stage)
    assert orders.served() == before
    seen = orders.done(f"rebuild-view {VIEW} --history --json")
    of_killed = [
        row["state"]
        for row in map(json.loads, seen.replace("} {", "}\n{").splitlines())
        if row["generation"] == 2
    ]
    assert of_killed == {"verify": [], "publish": ["sealed"]}[stage]
    left = orders.project.warehouse / VIEW / "_generations" / "000002"
    assert left.exists()
    for command in told.commands:
        orders.done(command)
    assert not left.exists()
    assert orders.served() == orders.source()
    orders.is_proved()


@pytest.mark.matrix
@pytest.mark.parametrize("staged", [False, True])
def test_a_rebuild_that_is_killed_while_publishing(served_orders, cache, staged):
    orders, told = served_orders, recipe("A rebuild or `--publish` is killed while publishing")
    orders.view("delta", "cache")
    orders.is_proved()
    orders.rename("new")
    if staged:
        orders.done(f"rebuild-view {VIEW} --stage")
    orders.crash("--defect", "die_in_the_switch", asked=[VIEW, "--publish"] if staged else [VIEW])
    assert (orders.served()[10], cached(cache)[1]) == ("new", "order 10")
    seen = orders.run("changelog doctor")
    assert told.is_seen_in(seen.said)
    for command in told.commands:
        orders.done(command)
    assert (orders.served()[10], cached(cache)[1]) == ("new", "new")
    assert not told.is_seen_in(orders.run("changelog doctor").said)
    orders.is_proved()


@pytest.mark.matrix
def test_a_follower_that_is_killed_goes_on(orders):
    told = recipe("A refresh or `--follow` is killed")
    orders.view("delta")
    (follow,) = told.commands

    def serves(name):
        place = str(orders.project.warehouse / VIEW)
        return lambda _: DeltaTable.is_deltatable(place) and orders.served()[10] == name

    with orders.started(follow) as following:
        following.until(serves("order 10"), "its first round")
        assert following.end(signal.SIGKILL).code == -signal.SIGKILL
    orders.rename("new")
    assert orders.served()[10] == "order 10"
    with orders.started(follow) as following:
        following.until(serves("new"), "it goes on")
        assert following.end(signal.SIGTERM).code == 0
    orders.is_proved()


@pytest.mark.matrix
def test_a_checkpoint_that_is_of_no_use(orders):
    told = recipe("A checkpoint, or what was proved, is too old, of another log, or broken")
    orders.view("delta")
    (again,) = told.commands
    orders.done(again)
    orders.rename("new")
    assert "is read from its start" not in orders.done(again)
    orders.done("changelog resnapshot TABLE")
    orders.project.capture()
    assert told.is_seen_in(orders.done(again))
    assert "is read from its start" not in orders.done(again)
    # One that is broken is not taken for one that is not there.
    kept = orders.project.warehouse / "_checkpoints"
    orders.rename("newer")
    for file in kept.glob("*/manifest/_delta_log/*.json"):
        file.write_bytes(b"broken")
    broken = orders.run(again)
    assert broken.code == 1
    assert "remove the folder _checkpoints" in broken.said
    shutil.rmtree(kept)
    assert "it has no checkpoint yet" in orders.done(again)
    assert orders.served() == orders.source()
    orders.is_proved()


@pytest.mark.matrix
def test_a_second_rebuild_of_one_view_waits_for_the_first(orders):
    told = recipe("Two rebuilds of one view, on one machine or two")
    orders.view("delta")
    with orders.rebuilding("--pause", "publish") as rebuild:
        rebuild.reached("publish")
        refused = orders.run(f"rebuild-view {VIEW}")
        assert (refused.code,) == told.codes
        assert told.is_seen_in(refused.said)
        assert f"process {rebuild.process.pid} on " in refused.said
        (wait,) = told.commands
        with orders.started(wait) as waiting:
            waiting.until(lambda said: "waits for a lock" in said, "the second waits")
            assert rebuild.go_on().code == 0
            assert waiting.end().code == 0
    assert states(orders)[2] == "published"
    orders.is_proved()


@pytest.mark.matrix
def test_a_rebuild_that_lost_its_lock(orders, tmp_path):
    told = recipe("A rebuild stands still until another has taken over its lock")
    orders.view("delta")
    settings = orders.project.root / "changelog.toml"
    place = json.dumps(str(orders.project.warehouse))
    text = f"rebuild.warehouse = {place}\nrebuild.lock_seconds = 3\n"
    settings.write_text(text + settings.read_text("utf-8"), "utf-8")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(
        orders.project.root, elsewhere, ignore=shutil.ignore_patterns("warehouse", ".*")
    )
    with orders.rebuilding("--pause", "publish") as rebuild:
        rebuild.reached("publish")
        rebuild.process.send_signal(signal.SIGSTOP)
        other = orders.done(f"rebuild-view {VIEW} --wait 120 --project {elsewhere}")
        rebuild.process.send_signal(signal.SIGCONT)
        ended = rebuild.go_on()
    assert ended.code == 5
    assert told.is_seen_in(ended.said)
    assert f"process {os.getpid()} on " in ended.said
    doctor, history = told.commands
    print(other, orders.run(doctor))
    assert "published" in orders.done(history)
    assert states(orders) == {1: "failed", 2: "published"}
    orders.is_proved()


@pytest.mark.matrix
def test_one_view_of_a_run_fails(orders):
    told = recipe("One view of a run fails")
    orders.view("delta")
    orders.project.view("names.sql", "-- key: name\nSELECT id, name FROM orders")
    orders.rename("order 11")  # two rows of one key
    failed = orders.run("rebuild-view --all")
    assert failed.code == 1
    assert told.is_seen_in(failed.said)
    assert orders.served() == orders.source()
    orders.rename("order 10")
    (again,) = told.commands
    assert orders.project.history("names")[-1][1] == "failed"
    said = orders.done(again)
    assert "left out" in said
    assert orders.served("names") == orders.source()
    assert [each for each in orders.project.history(VIEW) if each[1] == "published"] == [
        (1, "published")
    ]
    orders.is_proved()


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 16 << 10) as made:
        yield made.place


@pytest.mark.matrix
def test_a_full_disk(orders, disk):
    told = recipe("A disk is full")
    orders.view("delta")
    settings = orders.project.root / "changelog.toml"
    text = f"rebuild.warehouse = {json.dumps(str(disk))}\n" + settings.read_text("utf-8")
    settings.write_text(text, "utf-8")
    orders = replace(orders, project=replace(orders.project, place=disk))
    orders.is_proved()
    before = orders.served()
    orders.rename("new")
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    failed = orders.run("rebuild-view --all")
    print(failed)
    assert (failed.code,) == told.codes
    assert told.is_seen_in(failed.said)
    assert orders.served() == before
    doctor, again = told.commands
    print(orders.run(doctor))
    filler.unlink()
    orders.done(again)
    assert orders.served() == orders.source()
    orders.is_proved()


@pytest.mark.matrix
def test_what_is_not_in_the_table(orders, monkeypatch):
    back, anew, compare, copy = asides()
    orders.view("delta")
    orders.is_proved()
    orders.rename("what nobody should see")
    orders.is_proved()
    orders.done(back)
    assert orders.served()[10] == "order 10"
    with monkeypatch.context() as patched:
        patched.setenv("CHANGELOG_POSTGRES_DSN", "postgresql://127.0.0.1:1/nowhere")
        orders.done(anew)
    assert orders.served() == orders.source()
    orders.done(compare)
    orders.done(copy)
    orders.is_whole()
