"""A rebuild beside a follower: it takes over where the follower is, and no reader goes back."""

import os
import signal
import subprocess
import sys
import uuid

import pytest
from deltalake import DeltaTable
from rich.console import Console

from changelog.contract.base.errors import LockedError, ViewError
from changelog.stack.base.process import wait_until
from tests.support.shop import generations, opened_shop
from views.base.config import RowsSource, VerifyMode
from views.base.progress import Stages
from views.generations.lock import building, following, others_of
from views.generations.place import LockPlace
from views.generations.served import served_of
from views.project.catalog import Catalog
from views.rebuild.follow import Follower
from views.rebuild.rebuild import RebuildRun
from views.rebuild.resident import Resident
from views.rebuild.rollback import roll_back
from views.rebuild.takeover import Takeover

WHOLE = {"source": RowsSource.START, "forward": False, "verify": VerifyMode.FULL}


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    with opened_shop(stack, tmp_path_factory.mktemp("takeover") / "project") as made:
        yield made


def rebuilt(shop, follower, at, changes):
    """Rebuild all views from the log's start; the follower shows a change each time at a stage."""
    left = list(changes)

    def before(name):
        if name == at and left:
            shop.change(left.pop(0))
            outcome = follower.round()
            assert outcome is not None
            assert outcome.error is None, outcome.error

    made = RebuildRun(shop.settings(**WHOLE), Stages(Console(quiet=True), before))
    outcome = made.run(shop.specs)
    assert left == []
    assert outcome.error is None, outcome.error
    return outcome


def held(shop):
    project = shop.settings().project
    return {
        (spec.name, name): sorted(sink.generations())
        for spec in shop.specs
        for name, sink in served_of(spec, project, None).sinks.items()
    }


@pytest.mark.matrix
def test_a_rebuild_takes_over_where_the_follower_is_and_it_goes_on_from_there(shop, monkeypatch):
    # Several steps to get there, of few keys each.
    monkeypatch.setattr("views.rebuild.run.forward.MOST_KEYS", 7)
    with shop.followed() as follower:
        outcome = rebuilt(
            shop,
            follower,
            "recheck",
            ["UPDATE orders SET amount = amount + 1 WHERE id < 40; DELETE FROM lines WHERE no = 2"],
        )
        shop.is_right()
        assert all(result.verified and result.published for result in outcome.results)
        serving = generations(outcome)
        monkeypatch.undo()
        shop.change("UPDATE orders SET amount = amount + 2 WHERE id = 9")
        assert generations(follower.round()) == serving
        shop.is_right()
        assert follower.is_here, "without Spark again"
        shop.change("UPDATE customers SET name = name || '?' WHERE id = 9")
        assert generations(follower.round()) == serving
        shop.is_right()


@pytest.mark.matrix
def test_what_the_follower_shows_while_the_rebuild_is_on_its_way_is_shown_by_it_too(shop):
    with shop.followed() as follower:
        rebuilt(
            shop,
            follower,
            "verify",
            [f"UPDATE orders SET amount = amount + {n} WHERE id = 1{n}" for n in range(5)],
        )
        shop.is_right()


@pytest.mark.matrix
def test_twin_that_does_not_look_where_readers_are_takes_them_back(shop, monkeypatch):
    monkeypatch.setattr(Takeover, "is_behind", lambda *_: False)
    with shop.followed() as follower:
        rebuilt(shop, follower, "recheck", ["UPDATE orders SET amount = amount + 4 WHERE id = 12"])
        with pytest.raises(AssertionError):
            shop.is_right()
    assert shop.round(**WHOLE).error is None
    shop.is_right()


@pytest.mark.matrix
def test_who_goes_back_or_builds_on_what_serves_does_not_beside_a_follower(shop):
    names = [spec.name for spec in shop.specs]
    with following(LockPlace(shop.project.root), names):
        with pytest.raises(LockedError, match="is followed"):
            roll_back(shop.specs, shop.settings(), Stages(Console(quiet=True)))
        with pytest.raises(LockedError, match="is followed"):
            shop.round(forward=False)
        with (
            pytest.raises(LockedError, match="is followed"),
            following(LockPlace(shop.project.root), names),
        ):
            pass


@pytest.mark.matrix
def test_another_definition_that_takes_over_ends_the_follower(shop):
    path = shop.specs[0].path
    text = path.read_text("utf-8")
    with shop.followed() as follower:
        path.write_text(text.replace(" AS lines", " AS lines, max(o.id) AS latest"), "utf-8")
        try:
            changed = Catalog.of(shop.project.root).load_all()
            made = RebuildRun(shop.settings(**WHOLE), Stages(Console(quiet=True)))
            assert made.run(changed).error is None
            shop.change("UPDATE orders SET amount = amount + 5 WHERE id = 13")
            outcome = follower.round()
            assert isinstance(outcome.error, ViewError)
            assert "another definition" in str(outcome.error)
        finally:
            path.write_text(text, "utf-8")
    assert shop.round(**WHOLE).error is None
    shop.is_right()


_BUILDER = """
import sys, time
from rich.console import Console
from changelog.config import load_project
from pathlib import Path
from views.base.config import RebuildSettings, VerifyMode
from views.base.progress import Stages
from views.project.catalog import Catalog
from views.rebuild.rebuild import RebuildRun

def before(name):
    if name == sys.argv[2]:
        Path(sys.argv[3]).touch()
        while True:
            time.sleep(1)

root = Path(sys.argv[1])
settings = RebuildSettings(project=load_project(root), verify=VerifyMode.FULL)
RebuildRun(settings, Stages(Console(quiet=True), before)).run(Catalog.of(root).load_all())
"""


@pytest.mark.parametrize("stage", [pytest.param("verify", marks=pytest.mark.matrix)])
def test_a_killed_rebuild_leaves_nothing_that_could_serve(shop, tmp_path, monkeypatch, stage):
    """It is killed while it builds, with a number below one that a follower publishes."""
    there = tmp_path / "there"
    command = [sys.executable, "-c", _BUILDER, str(shop.project.root), stage, str(there)]
    names = [spec.name for spec in shop.specs]
    with shop.followed() as follower:
        with subprocess.Popen(command, start_new_session=True) as builder:
            try:
                assert wait_until(there.exists, 180)
                building_now = others_of(
                    LockPlace(shop.project.root), names[0], builds=False
                ).spared
                assert building_now
                # The follower has more keys than go forward, and writes a generation.
                monkeypatch.setattr("views.rebuild.run.forward.MOST_KEYS", 5)
                monkeypatch.setattr(follower._resident, "_held", None)
                shop.change("UPDATE orders SET amount = amount + 6 WHERE id < 60")
                outcome = follower.round()
                assert outcome.error is None, outcome.error
                assert generations(outcome)[names[0]] > max(building_now)
                assert building_now <= {n for numbers in held(shop).values() for n in numbers}
            finally:
                os.killpg(builder.pid, signal.SIGKILL)
        outcome = shop.round(**WHOLE)
        assert outcome.error is None, outcome.error
        left = {n for numbers in held(shop).values() for n in numbers}
        assert not building_now & left
        shop.is_right()


@pytest.mark.matrix
def test_a_view_with_a_sink_that_takes_all_rows_gets_another_generation(shop, endpoints):
    """Its follower writes generations too, with higher numbers than the one that is built."""
    view = f"both_{uuid.uuid4().hex[:8]}"
    path = shop.project.root / "views" / f"{view}.sql"
    shop.project.view(
        path.name, "-- key: id\n-- sinks: delta, cache\nSELECT id, customer_id FROM orders\n"
    )
    (spec,) = [each for each in shop.specs if each.name == view]
    changes = [f"INSERT INTO orders VALUES ({number}, 1, 9, NULL)" for number in (7001, 7002)]

    def quiet(before=lambda _: None):
        return Stages(Console(quiet=True), before)

    def round_of(follower):
        outcome = follower.round()
        assert outcome is not None
        assert outcome.error is None, outcome.error
        return outcome

    def before(name):
        if name in {"recheck", "retire"} and changes:
            shop.change(changes.pop(0))
            round_of(follower)

    def is_right(outcome):
        served = served_of(spec, shop.settings().project, None)
        (generation,) = {sink.published() for sink in served.sinks.values()}
        assert generation is not None
        assert generation == outcome.results[0].generation
        table = DeltaTable(served.sinks["delta"].address(generation).location["path"])
        rows = table.to_pyarrow_table().sort_by("id").to_pylist()
        assert [(row["id"], row["customer_id"]) for row in rows] == shop.project.query(
            "SELECT id, customer_id FROM orders ORDER BY id"
        )

    try:
        assert RebuildRun(shop.settings(**WHOLE), quiet()).run([spec]).error is None
        wanted = shop.settings()
        with (
            Resident(wanted) as resident,
            Follower(
                [spec], wanted, resident, stages=quiet, stop=lambda: False, make=RebuildRun
            ) as follower,
        ):
            follower.round()
            changes, later = changes[:1], changes[1:]
            outcome = RebuildRun(shop.settings(**WHOLE), quiet(before)).run([spec])
            assert outcome.error is None, outcome.error
            assert outcome.results[0].verified
            is_right(outcome)
            shop.change(later[0])
            is_right(round_of(follower))
    finally:
        path.unlink()


def test_builders_of_one_view_exclude_each_other(shop):
    names = [spec.name for spec in shop.specs]
    with (
        building(LockPlace(shop.project.root), names),
        pytest.raises(LockedError, match="another rebuild"),
        building(LockPlace(shop.project.root), names),
    ):
        pass
