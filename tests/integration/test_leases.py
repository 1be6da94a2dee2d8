"""Locks across machines: two folders that share the brokers and no disk, on real ones."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from changelog.contract.base.errors import LockedError
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.lease_holder import SERVES, VIEW, place_at
from tests.support.wait import wait_until
from views.generations.lock import (
    LockPatience,
    Moving,
    advancing,
    building,
    following,
    locked,
    others_of,
    reserve,
)

REPOSITORY = Path(__file__).parents[2]
TTL_S = 3


@pytest.fixture
def topic():
    return f"p{uuid.uuid4().hex[:10]}._locks"


@pytest.fixture
def machine(stack, topic, tmp_path):
    """Give the place of a project on a machine by its name."""

    def of(name, ttl=TTL_S):
        (tmp_path / name).mkdir(exist_ok=True)
        return place_at(tmp_path / name, stack.endpoints().brokers, topic, ttl)

    return of


@pytest.fixture
def holder(stack, topic, tmp_path):
    """Start a process that holds the locks of the view on a machine."""
    with ExitStack() as running:

        def start(name, generation=1, *options):
            (tmp_path / name).mkdir(exist_ok=True)
            words = [sys.executable, "-m", "tests.support.lease_holder", str(tmp_path / name)]
            words += [stack.endpoints().brokers, topic, str(TTL_S), str(generation), *options]
            pipe = subprocess.PIPE
            process = running.enter_context(
                subprocess.Popen(
                    words, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True
                )
            )
            running.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            return process

        yield start


def serves(tmp_path):
    path = tmp_path / SERVES
    return int(path.read_text()) if path.exists() else None


def test_a_second_machine_is_refused_by_name_and_gets_the_lock_when_the_first_ends(
    machine, holder, tmp_path
):
    first = holder("a")
    with pytest.raises(LockedError) as error, building(machine("b"), [VIEW]):
        pass
    assert error.value.exit_code == 5
    said = f'view "{VIEW}" runs: process {first.pid} on {socket.gethostname()} since '
    assert said in str(error.value)
    assert re.search(r"the lock lasts until \d{4}-\d\d-\d\dT", str(error.value))
    threading.Timer(1, lambda: first.stdin.write("\n") and first.stdin.flush()).start()
    with building(machine("b"), [VIEW], LockPatience.of(60, stop=lambda: False)):
        assert first.wait(20) == 0
    assert serves(tmp_path) == 1


def test_nobody_else_waits_who_works_on_other_views_or_follows(machine):
    a, b = machine("a"), machine("b")
    with following(a, ["v"]), building(b, ["v"]), building(a, ["w"]):
        with pytest.raises(LockedError, match="another rebuild"), building(a, ["u", "v"]):
            pass
        with pytest.raises(LockedError, match="is followed"), following(b, ["v"]):
            pass
        with building(a, ["u"]):  # it was given back
            pass
    with locked(b, ["v", "w"]):
        pass


def test_the_lock_of_a_killed_process_is_taken_over_when_it_ends(machine, holder):
    killed = holder("a", 7)
    begun = time.monotonic()
    killed.kill()
    killed.wait()
    with pytest.raises(LockedError), building(machine("b"), [VIEW]):
        pass
    b = machine("b")
    with building(b, [VIEW], LockPatience.of(60, stop=lambda: False)):
        assert time.monotonic() - begun >= TTL_S * 2 / 3
        assert 7 in others_of(b, VIEW, builds=True).dead


@pytest.mark.matrix
def test_on_its_own_machine_it_is_free_at_once(machine, holder):
    killed = holder("a", 7)
    killed.kill()
    killed.wait()
    with building(machine("a"), [VIEW]):
        pass


@pytest.mark.parametrize("options", [[], ["--unfenced"]], ids=["fenced", "seeded"])
def test_who_stood_still_until_another_took_over_does_not_publish(
    machine, holder, tmp_path, options
):
    stopped = holder("a", 1, *options)
    os.kill(stopped.pid, signal.SIGSTOP)
    b = machine("b")
    with building(b, [VIEW], LockPatience.of(60, stop=lambda: False)):
        reserve(b, VIEW, [2])
        with Moving(b, [VIEW], lambda: False):
            (tmp_path / SERVES).write_text("2")
            os.kill(stopped.pid, signal.SIGCONT)
            out, err = stopped.communicate("\n", timeout=30)
    if options:
        assert (stopped.returncode, serves(tmp_path)) == (0, 1), "readers went back"
        return
    assert stopped.returncode == 5, err
    assert "this run lost its lock" in err
    assert f"process {os.getpid()} on " in err
    assert "published" not in out
    assert serves(tmp_path) == 2


@pytest.mark.matrix
def test_who_stood_still_while_nobody_came_goes_on(holder, tmp_path):
    stopped = holder("a")
    begun = time.monotonic()
    os.kill(stopped.pid, signal.SIGSTOP)
    wait_until(lambda: time.monotonic() - begun > TTL_S + 1, 30, "the end of the lease")
    os.kill(stopped.pid, signal.SIGCONT)
    _, err = stopped.communicate("\n", timeout=30)
    assert stopped.returncode == 0, err
    assert serves(tmp_path) == 1


def test_what_a_builder_elsewhere_makes_is_spared_by_who_clears_up(machine):
    a, b = machine("a"), machine("b")
    with following(b, ["v"]), building(a, ["v"]):
        reserve(a, "v", [3, 4])
        assert others_of(b, "v", builds=False).spared == {3, 4}
        assert others_of(a, "v", builds=True).spared == frozenset()
    assert not others_of(b, "v", builds=False).spared


def has_grown(rounds, beyond):
    return rounds[0] > beyond


def test_a_follower_keeps_the_lease_of_its_rounds_until_somebody_waits(machine):
    a, b = machine("a", 30), machine("b", 30)
    over, rounds = threading.Event(), [0]

    def follow():
        moving = Moving(a, ["v"], lambda: False, keeps=True)
        with following(a, ["v"]):
            while not over.is_set():
                with moving:
                    rounds[0] += 1

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        wait_until(lambda: rounds[0] > 5, 30, "some rounds")
        assert a.leases is not None
        for _ in range(3):
            with Moving(b, ["v"], lambda: False):
                before = rounds[0]
                assert rounds[0] == before
            wait_until(partial(has_grown, rounds, rounds[0] + 2), 30, "rounds behind it")
    finally:
        over.set()
        follower.join()


def test_one_brings_checkpoints_forward_at_a_time(machine):
    a, b, events = machine("a"), machine("b"), []

    def second():
        with advancing(b):
            events.append("b")

    with advancing(a):
        other = threading.Thread(target=second)
        other.start()
        other.join(0.5)
        events.append("a")
    other.join(30)
    assert events == ["a", "b"]


TABLES = """
CREATE TABLE things (id int PRIMARY KEY, name text);
INSERT INTO things SELECT n, 'n' || n FROM generate_series(1, 20) AS n;
"""


@pytest.fixture
def project(stack, spark, tmp_path):
    with captured_database(stack, tmp_path / "one", TABLES) as (made, _):
        name = f"v{uuid.uuid4().hex[:10]}"
        made.view(f"{name}.sql", "-- key: id\nSELECT id, name FROM things")
        settings = made.root / "changelog.toml"
        place = json.dumps(str(made.warehouse))
        text = f"rebuild.warehouse = {place}\nrebuild.lock_seconds = 3\n"
        settings.write_text(text + settings.read_text("utf-8"), "utf-8")
        yield made, name


@contextmanager
def rebuilding(project, view, *options):
    words = [sys.executable, "-m", "tests.support.crashing_rebuild", *options]
    words += ["--", view, "--json", "--project", str(project.root)]
    with subprocess.Popen(
        words, cwd=REPOSITORY, stdin=-1, stdout=-1, stderr=-1, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.matrix
def test_a_rebuild_that_stood_still_leaves_readers_to_the_one_that_took_over(
    project, capsys, monkeypatch, tmp_path
):
    here, view = project
    elsewhere = tmp_path / "two"
    shutil.copytree(here.root, elsewhere, ignore=shutil.ignore_patterns("warehouse", ".*"))
    there = replace(here, root=elsewhere)
    run = partial(rebuild_view, capsys, monkeypatch, there)
    with rebuilding(here, view, "--pause", "publish") as stopped:
        while "at publish" not in stopped.stderr.readline():
            assert stopped.poll() is None
        refused = run(view, "--json")
        assert refused.code == 5
        assert f"process {stopped.pid} on " in refused.results[0]["error"]
        os.kill(stopped.pid, signal.SIGSTOP)
        ran = run(view, "--wait", "60", "--json")
        assert ran.code == 0, ran.err
        assert ran.results[0]["generation"] == 2, "the first one's number is taken"
        os.kill(stopped.pid, signal.SIGCONT)
        out, err = stopped.communicate("\n", timeout=120)
    assert stopped.returncode == 5, err
    (result,) = [json.loads(line) for line in out.splitlines()]
    assert "this run lost its lock" in result["error"]
    assert not result["published"]
    assert [row for row in here.history(view) if row[1] == "published"] == [(2, "published")]
    assert run(view, "--json").results[0]["generation"] == 3
