"""Two databases, two captures: a view that joins both reads each at a frontier of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

import replay
from changelog.contract.log.topic import frontier_topic
from replay.broker.topics import read_frontier
from replay.pipeline.replay import open_replay
from tests.support.captured_project import CapturedProject, rebuild_view
from tests.support.matrix import first
from tests.support.page_lines import block_of
from tests.support.rounds import quiet, rounds
from tests.support.two_captures import JOINED, Two, two_captures
from views.base.config import RowsSource
from views.rebuild.rebuild import RebuildRun

pytestmark = [pytest.mark.services, pytest.mark.spark]

DOCS = Path(__file__).parents[2] / "docs"
BEFORE = [(1, "bread", 110, 110), (2, "milk", None, 0)]
TORN = [(1, "bread", 110, 110), (2, "milk", 220, 0)]
AFTER = [(1, "bread", 110, 110), (2, "milk", 220, 220)]


@pytest.fixture
def make(stack, tmp_path):
    """Return what makes two captured projects with a view that joins them."""
    with two_captures(stack, tmp_path) as make_two:

        def made(**more) -> Two:
            two = make_two(**more)
            two.shop.view("joined.sql", JOINED)
            return two

        yield made


FLAT = 'form = "flat-avro"\nkey = ["id"]'


@pytest.mark.matrix
@pytest.mark.parametrize("defect", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_no_transaction_of_the_other_capture_is_shown_in_part(
    make, kafka, capsys, monkeypatch, defect
):
    """One of its two records stands on the log when that capture is killed.

    The twin reads the same topics to their ends, as logs of another program: it shows, and proves,
    a payment that no total has.
    """
    two = make()
    if defect:
        two.declare(FLAT)
    two.tear()
    ran = rebuild_view(capsys, monkeypatch, two.shop, "joined", "--json")
    assert ran.code == 0, ran.err
    (result,) = ran.results
    assert (result["verified"], result["published"]) == (True, True)
    certificate = result["certificates"]["delta"]["certificate"]
    if defect:
        assert two.rows() == TORN
        assert "other_frontiers" not in result
        two.billing.capture()
        return
    assert two.rows() == BEFORE
    own = read_frontier(kafka, frontier_topic(two.own), two.own).frontier
    other = read_frontier(kafka, frontier_topic(two.prefix), two.prefix).frontier
    assert (certificate["slot"], certificate["frontier"]["lsn"]) == (two.own, str(own.lsn))
    assert result["frontier"]["lsn"] == str(own.lsn)
    place = {"slot": two.prefix, "epoch": other.epoch, "lsn": str(other.lsn)}
    place |= {"ends": {topic: list(other.ends[topic]) for topic in two.topics}}
    for told in (certificate, result):
        (beside,) = told["other_frontiers"]
        assert {name: beside[name] for name in place} == place
    assert certificate["declared"] == []
    said = rebuild_view(capsys, monkeypatch, two.shop, "joined", "--history", "--json")
    assert f"beside LSN {other.lsn}, epoch {other.epoch} of slot {two.prefix}" in said.out
    # The rest of the transaction comes, and is sent again in part: it is shown whole.
    two.billing.capture()
    again = rebuild_view(capsys, monkeypatch, two.shop, "joined")
    assert again.code == 0, again.err
    assert two.rows() == AFTER
    assert f"of slot {two.prefix}" in again.err


def alter(kafka, topic, **settings) -> None:
    """Set settings of a topic; `_` stands for `.`."""
    entries = [
        ConfigEntry(name.replace("_", "."), text, incremental_operation=AlterConfigOpType.SET)
        for name, text in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient(kafka.client_config())  # held, or what it has begun ends with it
    admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.matrix
def test_the_plan_judges_both_logs_and_says_what_is_missing_of_the_other(
    make, kafka, capsys, monkeypatch
):
    two = make()

    def planned(*more, code=0):
        ran = rebuild_view(capsys, monkeypatch, two.shop, "joined", "--plan", *more)
        assert ran.code == code, ran.err
        return ran

    (plan,) = planned("--json").results
    assert set(plan["verdicts"]) == {f"{two.own}.orders", *two.topics}
    (beside,) = plan["other_frontiers"]
    assert (beside["slot"], set(beside["ends"])) == (two.prefix, set(two.topics))
    assert (plan["provable"], plan["refresh"]) == (True, "whole")
    said = planned().err
    for slot in (two.own, two.prefix):
        assert f"epoch 1 of slot {slot}" in said
    # The first deadline of all counts, and the worst verdict.
    alter(kafka, two.topics[1], min_compaction_lag_ms=str(2 * 3_600_000))
    (plan,) = planned("--json").results
    assert plan["deadline"] == plan["verdicts"][two.topics[1]]["deadline"]
    assert plan["deadline"] < plan["verdicts"][f"{two.own}.orders"]["deadline"]
    assert two.topics[1] in " ".join(plan["reasons"])
    alter(kafka, two.topics[1], cleanup_policy="delete")
    said = " ".join(planned(code=4).err.split())
    assert f'"{two.topics[1]}": cleanup.policy is delete, must be compact' in said
    alter(kafka, two.topics[1], cleanup_policy="compact")
    two.shop.view("apart.sql", "-- key: id\nSELECT id FROM orders")
    for text, says in (
        (two.captured().replace("._frontier", ".frontier"), "there is no frontier topic"),
        (two.captured().replace('slot = "', 'slot = "x'), f'no frontier of slot "x{two.prefix}"'),
    ):
        two.declare(text)
        said = " ".join(planned(code=1).err.split())
        assert says in said
        assert "[logs.paid]" in said
        others = rebuild_view(capsys, monkeypatch, two.shop, "--all", "--plan")
        assert "apart writes" in others.err, "the views of the project's own tables go on"
    two.settle(f'[logs.paid]\ntopic = "{two.prefix}.nothing"\n{two.captured()}\n')
    two.shop.view("joined.sql", "-- key: id\nSELECT id FROM orders JOIN paid USING (id)")
    said = " ".join(planned(code=2).err.split())
    assert f'topic "{two.prefix}.nothing" holds no table that the frontier of slot' in said
    assert two.topics[0] in said
    two.declare(two.captured())
    two.shop.view("joined.sql", "-- key: id\nSELECT id FROM paid")
    (plan,) = planned("--json").results  # of the other capture alone: its frontier is the view's
    assert (plan["topics"], "other_frontiers" in plan) == ({"paid": two.topics[0]}, False)
    older = rebuild_view(capsys, monkeypatch, two.shop, "joined", "--as-of", "0/1")
    assert older.code == 2
    assert "leave out --as-of" in " ".join(older.err.split())


@pytest.mark.matrix
def test_two_sources_of_one_project_are_joined_likewise(
    make, tmp_path, endpoints, capsys, monkeypatch
):
    two = make()
    both = CapturedProject(tmp_path / "both", "")
    both.root.mkdir()
    query = "SELECT o.id, p.amount FROM orders o LEFT JOIN payments p ON p.id = o.id"
    both.view("joined.sql", f"-- key: id\n{query}")
    (both.root / "changelog.toml").write_text(
        f"kafka.brokers = {json.dumps(endpoints.brokers)}\n"
        f"registry.url = {json.dumps(endpoints.schema_registry)}\n"
        f"[sources.{two.own}]\ndsn = {json.dumps(two.shop.dsn)}\n"
        f"[sources.{two.prefix}]\ndsn = {json.dumps(two.billing.dsn)}\n"
    )
    # As the page says it, which calls the other source billing.
    text = block_of(DOCS / "reading.md", "toml", "[logs.payments]").text
    assert 'slot = "billing"' in text
    replace(two, shop=both).settle(
        text.replace('"billing.payments"\nf', f'"{two.topics[0]}"\nf')
        .replace('"billing._', f'"{two.prefix}._')
        .replace('slot = "billing"', f'slot = "{two.prefix}"')
    )
    ran = rebuild_view(capsys, monkeypatch, both, "joined", "--plan", "--json", "--source", two.own)
    assert ran.code == 0, ran.err
    (plan,) = ran.results
    assert set(plan["verdicts"]) == {f"{two.own}.orders", two.topics[0]}
    assert [each["slot"] for each in plan["other_frontiers"]] == [two.prefix]
    # In Python such a log is a table with all that the project's own have.
    with monkeypatch.context() as chosen:
        chosen.setenv("CHANGELOG_CAPTURE_SOURCE", two.own)
        paid = replay.Log.open(both.root).table("payments")
    assert paid.arrow(engine="local").to_pylist() == [{"id": 1, "amount": 110}]
    before = paid.frontier()
    two.billing.execute("UPDATE payments SET amount = 9 WHERE id = 1")
    two.billing.capture()
    assert [(each or {})["amount"] for each in (paid.row(1), paid.at(before).row(1))] == [9, 110]
    assert len(paid.changes(before)) == 2


@pytest.mark.matrix
@pytest.mark.parametrize("written", first(1, ["json", "avro"]))
def test_a_row_that_spark_reads_wrong_of_the_other_log_is_refuted(
    make, capsys, monkeypatch, written
):
    two = make(capture=f'output_format = "{written}"')
    ran = rebuild_view(capsys, monkeypatch, two.shop, "joined")
    assert ran.code == 0, ran.err
    assert two.rows() == BEFORE
    two.billing.execute("UPDATE payments SET amount = 9 WHERE id = 1")
    two.billing.capture()

    def short(spark, kafka, cut, schemas):
        """Leave the last record of each partition unread."""
        frontier = cut.record.frontier
        if frontier.slot == two.prefix:
            topic = two.topics[0]
            shorter = tuple(max(0, end - 1) for end in frontier.ends[topic])
            ends = {**frontier.ends, topic: shorter}
            cut = replace(cut, record=replace(cut.record, frontier=replace(frontier, ends=ends)))
        return open_replay(spark, kafka, cut, schemas)

    monkeypatch.setattr("views.rebuild.plan.plan.open_replay", short)
    refuted = rebuild_view(capsys, monkeypatch, two.shop, "joined")
    assert refuted.code == 3, refuted.err
    assert two.rows() == BEFORE


@pytest.mark.matrix
def test_what_moves_in_the_other_log_during_the_read_ends_it(make, kafka, capsys, monkeypatch):
    two = make()
    real, topic = RebuildRun._build, two.topics[1]

    def moved(self, *words):
        real(self, *words)
        alter(kafka, topic, cleanup_policy="delete")

    monkeypatch.setattr(RebuildRun, "_build", moved)
    ran = rebuild_view(capsys, monkeypatch, two.shop, "joined", "--verify", "none")
    assert ran.code == 4, ran.err
    assert topic in ran.err
    assert {state for _, state in two.shop.history("joined")} == {"failed"}


@pytest.mark.matrix
def test_a_joined_view_is_followed_by_either_frontier(make, capsys, monkeypatch):
    two = make()
    with rounds(two.shop.root, "joined") as (made, specs, settings):
        assert made()
        assert two.rows() == BEFORE
        assert made() is None
        two.tear()
        assert made() is None, "a part of a transaction is nothing new"
        two.billing.capture()
        assert made()
        assert two.rows() == AFTER
        two.shop.execute("UPDATE orders SET item = 'oats' WHERE id = 2")
        two.shop.capture()
        assert made()
        assert two.rows()[1][1] == "oats"
        # A rebuild waits for the follower's round, and the follower for the rebuild.
        assert (
            RebuildRun(replace(settings, source=RowsSource.START), quiet()).run(specs).error is None
        )
        assert made() is None
