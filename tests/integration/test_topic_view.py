"""From a captured table to a topic, and from the topic to a view of another project, proved."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from rich.console import Console

from changelog.config import load_project
from tests.conformance.conftest import committed
from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
    write_settings,
)
from tests.support.matrix import first
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.project.catalog import Catalog
from views.rebuild.follow import Follower
from views.rebuild.rebuild import RebuildRun
from views.rebuild.resident import Resident
from views.sinks.topic.register import TopicForward

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(10, 2),
    at timestamptz);
INSERT INTO orders SELECT n, 'c' || n % 40, n * 1.25, '2020-01-01'::timestamptz + n * interval '1 s'
FROM generate_series(1, 200) n;
"""
TOTALS = (
    "-- key: customer\n-- sinks: topic\nSELECT customer, count(*) AS orders, sum(amount) AS total "
    "FROM orders GROUP BY customer\n"
)
CHANGES = """
UPDATE orders SET amount = amount + 1 WHERE id <= 10; DELETE FROM orders WHERE customer = 'c7';
INSERT INTO orders VALUES (1000, 'new', 5, NULL)
"""
WANTED = "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer ORDER BY 1"


@pytest.fixture(scope="module")
def chained(stack, tmp_path_factory):
    """A project with a view in a topic, and another project that declares that topic."""
    folder = tmp_path_factory.mktemp("topic")
    with captured_database(stack, folder / "first", TABLES) as (project, prefix):
        project.view("totals.sql", TOTALS)
        second = CapturedProject(folder / "second", "")
        write_settings(second.root, stack.endpoints(), "", f"{prefix}x")
        settings = second.root / "changelog.toml"
        settings.write_text(
            settings.read_text("utf-8")
            + f'\n[logs.totals]\ntopic = "{prefix}.views.totals"\nform = "flat-avro"\n'
            'key = ["customer"]\n',
            encoding="utf-8",
        )
        second.view("copied.sql", "-- key: customer\nSELECT customer, orders, total FROM totals\n")
        topic = f"{prefix}.views.totals"
        yield SimpleNamespace(project=project, second=second, topic=topic, stack=stack)


def copied(made):
    return sorted(
        (row["customer"], row["orders"], row["total"]) for row in made.second.delta("copied")
    )


@pytest.mark.matrix
def test_another_project_rebuilds_an_equal_view_with_proof(spark, chained, capsys, monkeypatch):
    project, second = chained.project, chained.second
    for statements in ("SELECT 1", CHANGES):
        project.execute(statements)
        project.capture()
        done = rebuild_view(capsys, monkeypatch, project, "totals", "--json")
        assert done.code == 0, done.err
        assert {each["verified"] for each in done.results} == {True}
        ran = rebuild_view(capsys, monkeypatch, second, "copied", "--json")
        assert ran.code == 0, ran.err
        assert {each["verified"] for each in ran.results} == {True}
        assert copied(chained) == project.query(WANTED)
    assert rebuild_view(capsys, monkeypatch, project, "totals", "--rollback").code == 0
    assert rebuild_view(capsys, monkeypatch, second, "copied").code == 0
    assert len(copied(chained)) == 40


class KilledError(Exception):
    """Stands for the end of a process."""


STEPS = ["behind the commit", "apply", "record", "scan", "merge", "prove", "verify"]


@pytest.mark.matrix
@pytest.mark.parametrize("step", first(1, STEPS))
def test_a_follower_brings_the_topic_forward_and_goes_on_after_a_kill(
    spark, chained, monkeypatch, step
):
    project = chained.project
    monkeypatch.setattr("views.rebuild.resident.RECORDED_EVERY", timedelta(0))
    dying: list[str] = []

    def before(name):
        if dying == [name]:
            raise KilledError

    settings = RebuildSettings(
        project=load_project(project.root),
        verify=VerifyMode.CHANGED,
        source=RowsSource.REFRESH,
        forward=True,
        together=True,  # so that what ends a sink's worker ends its round
    )
    specs = Catalog.of(project.root).load_all()

    def stages():
        return Stages(Console(quiet=True), before)

    def round_of(follower):
        outcome = follower.round()
        assert outcome.error is None, outcome.error
        return outcome

    def changed(statements):
        project.execute(statements)
        project.capture()

    with (
        Resident(settings) as resident,
        Follower(
            specs, settings, resident, stages=stages, stop=lambda: False, make=RebuildRun
        ) as follower,
    ):
        (begun,) = round_of(follower).results
        changed(
            f"UPDATE orders SET amount = {STEPS.index(step)} WHERE customer = 'c3';"
            "DELETE FROM orders WHERE customer = 'c4';"
            "UPDATE orders SET customer = 'moved' WHERE id = 5"
        )
        (second,) = round_of(follower).results
        assert second.generation == begun.generation
        assert second.rows == len(project.query(WANTED))
        assert served(chained) == len(project.query(WANTED))
        changed(f"UPDATE orders SET amount = {10 + STEPS.index(step)} WHERE customer = 'c3'")
        sound = TopicForward.apply
        with monkeypatch.context() as patched:
            if step == STEPS[0]:
                patched.setattr(TopicForward, "apply", killed_behind(sound))
            dying.append(step)
            with pytest.raises(KilledError):
                follower.round()
    dying.clear()
    again = RebuildRun(settings, stages()).run(specs)
    assert again.error is None, again.error
    assert [each.generation for each in again.results] == [begun.generation]
    assert served(chained) == len(project.query(WANTED))
    assert again.results[0].rows == len(project.query(WANTED))


def killed_behind(sound):
    """The process ends when the transaction has been committed, and nobody was told."""

    def apply(self, *arguments):
        sound(self, *arguments)
        raise KilledError

    return apply


def served(made):
    """Return how many rows readers see, of which the frontier tells too."""
    brokers = made.stack.endpoints().brokers
    register = committed(brokers, f"{made.topic}.generations") or {}
    assert json.loads(register[b"published"])["position"] is not None
    return len(committed(brokers, made.topic) or {})
