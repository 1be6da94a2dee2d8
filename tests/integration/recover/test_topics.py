"""docs/recover.md, what happens to topics: each fault is caused, seen and mended by the page."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable

from changelog.capture.inspect.status import last_frontier
from changelog.config import load_project
from changelog.sink.registry import SchemaRegistry
from replay.broker.topics import inspect
from tests.integration.recover.orders import REPOSITORY, ROWS
from tests.support.beginnings import alter, delete_records
from tests.support.lost_records import lose_records
from tests.support.recipes import recipe

SOON_MS = 6_000
"""How long tombstones stay for a read that takes longer: 400 ms beyond what clocks may differ."""


def frontier_of(orders):
    record = last_frontier(load_project(orders.project.root))
    assert record is not None
    return record.frontier


def settings_of(orders):
    return inspect(orders.kafka, [orders.topic])[orders.topic].settings


@pytest.mark.matrix
def test_a_topic_whose_settings_changed_gets_them_back(orders):
    told = recipe("A topic's settings changed")
    orders.view("delta")
    alter(orders.kafka, orders.topic, cleanup_policy="compact,delete")
    captured, rebuilt = (
        orders.run("changelog capture --until now"),
        orders.run("rebuild-view --all"),
    )
    assert (captured.code, rebuilt.code) == (0, *told.codes)
    assert told.is_seen_in(captured.said)
    assert told.is_seen_in(orders.run("changelog status").said)
    look, mend = told.commands
    seen = orders.run(look)
    assert seen.code == 4
    assert f"`{mend}`" in seen.said
    with orders.started(mend) as capture:
        capture.until(lambda said: "resuming at the frontier" in said, "capture goes on")
        assert capture.end(signal.SIGTERM).code == 0
    assert settings_of(orders)["cleanup.policy"] == "compact"
    orders.done(look)
    orders.is_whole()


@pytest.mark.matrix
def test_records_that_the_settings_removed_are_copied_anew(orders):
    told = recipe("A topic's settings changed")
    orders.view("delta")
    delete_records(orders.kafka, orders.topic)
    alter(orders.kafka, orders.topic, cleanup_policy="compact,delete")
    look, mend = told.commands
    orders.run(f"{mend} --until now")
    seen = orders.run(look)
    assert (seen.code, "older records were deleted" in seen.said) == (4, True)
    orders.done("changelog resnapshot TABLE")
    orders.is_whole()


@pytest.mark.matrix
def test_a_registry_that_loses_schemas_while_capture_runs_is_noticed(orders, registry):
    told = recipe("The registry loses schemas")
    (mend,) = told.commands
    orders.view("delta")
    with orders.started("changelog capture") as capture:
        capture.until(lambda said: "streaming from" in said, "capture streams")
        with closing(SchemaRegistry(registry)) as there:
            for part in ("key", "value"):
                there.remove(f"{orders.topic}-{part}")
        orders.project.execute("UPDATE orders SET name = 'new' WHERE id = 10")
        status = orders.run("changelog status")
        ended = capture.end()
    assert (ended.code, status.code) == told.codes
    assert told.is_seen_in(ended.said + status.said)
    orders.done(f"{mend} --until now")
    orders.is_whole()
    assert orders.served()[10] == "new"
    assert "schemas" not in orders.run("changelog status --allow-inactive").said


@pytest.mark.matrix
def test_a_rebuild_reads_again_when_a_broker_restarts(own_orders, broker):
    told = recipe("A broker restarts while a rebuild reads")
    own_orders.view("delta")
    with own_orders.rebuilding("--pause", "recheck") as rebuild:
        rebuild.reached("recheck")
        broker.stop()
        broker.start()
        ended = rebuild.go_on()
    assert ended.code == 0, ended.said
    assert told.is_seen_in(ended.said)
    for command in told.commands:
        own_orders.done(command)
    own_orders.is_whole()


@pytest.mark.matrix
def test_a_leader_without_the_records_of_the_one_before(own_orders, broker):
    told = recipe("A leader without the records of the one before")
    orders = own_orders
    orders.view("delta")
    orders.rename("stays")
    orders.rename("is lost")
    (before,) = inspect(orders.kafka, [orders.topic])[orders.topic].ends
    lose_records(broker, orders.topic, batches=2)  # the copy is one, and so is each change
    assert inspect(orders.kafka, [orders.topic])[orders.topic].ends == (before - 1,)
    refused = orders.run("changelog capture --until now")
    rebuilt = orders.run("rebuild-view --all")
    assert (refused.code, rebuilt.code) == told.codes
    assert told.is_seen_in(refused.said)
    assert told.is_seen_in(rebuilt.said)
    assert orders.topic in refused.said
    for command in told.commands:
        orders.done(command)
    orders.is_whole()
    assert orders.served()[10] == "is lost"


@pytest.mark.matrix
def test_a_topic_that_got_more_partitions_is_copied_anew_at_leisure(orders):
    told = recipe("A topic got more partitions")
    orders.view("delta")
    with orders.started("changelog capture") as capture:
        capture.until(lambda said: "streaming from" in said, "capture streams")
        admin = AdminClient(orders.kafka.client_config())
        admin.create_partitions([NewPartitions(orders.topic, 3)])[orders.topic].result(30)
        orders.project.execute("UPDATE orders SET name = 'new' WHERE id = 10")
        capture.until(told.is_seen_in, "capture tells of them and begins again")
        assert capture.end(signal.SIGTERM).code == 0
    orders.is_proved()
    kept = settings_of(orders)
    # Twin: as if the time were over in which all tombstones are there.
    alter(orders.kafka, orders.topic, min_compaction_lag_ms=1, delete_retention_ms=1)
    late = orders.run("rebuild-view --all --plan")
    assert (late.code, "since it got more partitions ended at" in late.said) == (4, True)
    assert "`changelog resnapshot`" in late.said
    names = ("min.compaction.lag.ms", "delete.retention.ms")
    alter(orders.kafka, orders.topic, **{name: kept[name] for name in names})
    for command in told.commands:
        orders.done(command)
    orders.is_whole()
    alter(orders.kafka, orders.topic, min_compaction_lag_ms=1, delete_retention_ms=1)
    assert "since it got more partitions" not in orders.run("rebuild-view --all --plan").said


@pytest.mark.matrix
def test_a_read_that_outlasts_its_deadline_begins_at_a_checkpoint(orders):
    told = recipe("A read outlasts its deadline")
    orders.view("delta")
    (mend,) = told.commands
    orders.done(mend)  # what runs of every night have left
    orders.rename("new")
    before = orders.served()
    alter(orders.kafka, orders.topic, delete_retention_ms=SOON_MS)
    ended = orders.run("rebuild-view --all")
    assert (ended.code,) == told.codes
    assert told.is_seen_in(ended.said)
    assert orders.served() == before
    orders.done(mend)
    assert orders.served() == orders.source()
    orders.done("changelog capture --fix-topics --until now")
    orders.is_whole()


@pytest.mark.matrix
def test_a_topic_without_its_first_records_is_copied_anew(orders):
    told = recipe("A topic made anew, or without its first records")
    orders.view("delta")
    assert any(delete_records(orders.kafka, orders.topic))
    is_refused(orders, told)
    (mend,) = told.commands
    mended(orders, mend)


@pytest.mark.matrix
def test_a_topic_made_anew_is_filled_by_a_copy(orders):
    told = recipe("A topic made anew, or without its first records")
    orders.view("delta")
    orders.done(f"changelog topics --delete {orders.topic} --yes")
    orders.done(f"changelog topics --create {orders.topic} --partitions 1")
    is_refused(orders, told)
    (mend,) = told.commands
    mended(orders, mend)


def is_refused(orders, told):
    """The page's sentence holds of capture, of `status`, and of rebuilds."""
    for command in ("changelog capture --until now", "changelog status", "rebuild-view --all"):
        ended = orders.run(command)
        assert ended.code != 0
        assert orders.topic in ended.said
        assert any(quote in ended.said for quote in told.quotes), f"{command}: {ended.said}"


def mended(orders, capture):
    """Carry out a command that goes on, until the log holds all tables; then look at everything."""
    before = frontier_of(orders).since.get(orders.topic)

    def is_copied(_):
        found = frontier_of(orders)
        return orders.topic in found.tables and found.since.get(orders.topic) != before

    with orders.started(capture) as running:
        running.until(is_copied, "the table is copied")
        assert running.end(signal.SIGTERM).code == 0
    orders.is_whole()


@pytest.mark.matrix
def test_a_corrupt_record_is_looked_at_left_out_and_written_anew(orders):
    told = recipe("A corrupt record")
    orders.view("delta")
    orders.project.execute("UPDATE orders SET name = 'cut off' WHERE id = 10")
    words = [sys.executable, "-m", "tests.support.crashing_capture", str(orders.project.root)]
    words += ["--until", "now", "--defect", "cut_values_off"]
    subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    failed = orders.run("rebuild-view --all")
    assert (failed.code,) == told.codes
    assert told.is_seen_in(failed.said)
    assert f'topic "{orders.topic}"' in failed.said
    look, mend = told.commands
    shown = orders.done(look)
    orders.done(mend)
    assert 10 not in orders.served()
    assert len(orders.served()) == ROWS - 1
    kept = DeltaTable(str(orders.project.warehouse / "_quarantine")).to_pyarrow_table().to_pylist()
    assert [(row["topic"], row["partition"], row["offset"]) for row in kept] == [
        (orders.topic, 0, ROWS)
    ]
    assert kept[0]["value"].hex() in shown
    orders.done("changelog resnapshot TABLE")
    orders.is_whole()
    assert orders.served()[10] == "cut off"
