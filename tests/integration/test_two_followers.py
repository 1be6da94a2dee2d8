"""Two followers of one view: one machine has a lock, and on two the sinks let nobody go back."""

import dataclasses
import importlib
import json
import shutil
import threading
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from changelog.contract.base.errors import ChangelogError, LockedError, SinkError
from tests.support.shop import opened_shop
from tests.support.wait import wait_until
from views.base.progress import Stages
from views.generations.served import served_of
from views.rebuild.follow import follow

pytestmark = pytest.mark.matrix  # what it is for is asked of each sink in tests/conformance
ROUNDS = 8
REFUSERS = ["cache", "postgres", "search"]


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    with opened_shop(stack, tmp_path_factory.mktemp("two") / "project") as made:
        # What keeps them apart across machines is asked in test_leases.py.
        settings = made.project.root / "changelog.toml"
        settings.write_text('rebuild.lock = "local"\n' + settings.read_text("utf-8"), "utf-8")
        yield made


@pytest.fixture(scope="module")
def other(shop, tmp_path_factory):
    """The same project on another machine: other locks, the same sinks and the same warehouse."""
    root = tmp_path_factory.mktemp("elsewhere") / "project"
    shutil.copytree(shop.project.root, root, ignore=shutil.ignore_patterns("warehouse", ".*"))
    settings = root / "changelog.toml"
    place = json.dumps(str(shop.project.warehouse))
    settings.write_text(f"rebuild.warehouse = {place}\n" + settings.read_text("utf-8"), "utf-8")
    return dataclasses.replace(shop, project=dataclasses.replace(shop.project, root=root))


class Reader:
    """Looks at the positions of all sinks, again and again; a thread."""

    def __init__(self, shop):
        settings = shop.settings()
        self._sinks: dict[tuple[str, str], Any] = {
            (spec.name, kind): sink
            for spec in shop.specs
            for kind, sink in served_of(spec, settings.project, None).sinks.items()
        }
        self.seen: dict[tuple[str, str], list[Any]] = {place: [] for place in self._sinks}
        self.looks = 0
        self._over = threading.Event()

    def look(self):
        for place, sink in self._sinks.items():
            published = sink.published()
            self.seen[place].append((published, sink.position(published)))
        self.looks += 1

    def looks_once(self):
        begun = self.looks
        wait_until(lambda: self.looks > begun + 1, 60, "the reader looks")

    def run(self):
        while not self._over.is_set():
            self.look()

    @contextmanager
    def looking(self):
        running = threading.Thread(target=self.run)
        running.start()
        try:
            yield self
        finally:
            self._over.set()
            running.join()

    def never_went_back(self):
        for place, seen in self.seen.items():
            generations = [generation for generation, _ in seen]
            assert generations == sorted(generations), place
            positions = [position for _, position in seen if position is not None]
            assert positions == sorted(positions), f"{place} went back"
            assert len(set(seen)) > 1, f"nothing moved in {place}"


def quiet():
    return Stages(Console(quiet=True))


def overtaken(shop, other):
    """Let a follower send what another has gone beyond meanwhile; returns what it is told."""
    told = []
    with shop.followed() as ahead:
        late: list[bool] = []

        def before(name):
            # The last moment: what is proved is sent at once.
            if name == "verify" and late:
                late.clear()
                shop.change("UPDATE orders SET amount = amount + 3 WHERE id BETWEEN 30 AND 33")
                assert ahead.round().error is None
                reader.looks_once()

        with other.followed(before=before) as behind, Reader(shop).looking() as reader:
            shop.change("UPDATE orders SET amount = amount + 2 WHERE id BETWEEN 30 AND 33")
            reader.looks_once()
            late.append(True)
            told = [result.error for result in behind.round().results]
            reader.looks_once()
    reader.never_went_back()
    shop.is_right()
    return told


def test_who_was_overtaken_is_refused_by_each_sink_and_catches_up(shop, other):
    told = overtaken(shop, other)
    assert len(told) == len(REFUSERS)
    for error in told:
        assert isinstance(error, SinkError)
        assert "let one process follow a view" in str(error)
    shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 34")
    with other.followed():
        shop.is_right()


def test_twin_without_the_refusal_readers_go_back(shop, other, monkeypatch):
    for kind in REFUSERS:
        module = importlib.import_module(f"views.sinks.{kind}.forward")
        monkeypatch.setattr(module, "refuse_older", lambda *_: None)
    with pytest.raises(AssertionError, match="went back"):
        overtaken(shop, other)
    monkeypatch.undo()
    assert shop.round(forward=False).error is None
    shop.is_right()


def test_two_followers_under_a_stream_of_changes_lose_nothing(shop, other):
    over = threading.Event()
    unexpected: list[Exception] = []

    def keep_following(place):
        try:
            with place.followed() as follower:
                while not over.is_set():
                    try:
                        follower.round()
                    except ChangelogError as error:
                        errors.append(error)
        except Exception as error:  # noqa: BLE001 - told below
            unexpected.append(error)

    errors: list[ChangelogError] = []
    running = [threading.Thread(target=keep_following, args=[each]) for each in (shop, other)]
    with Reader(shop).looking() as reader:
        for each in running:
            each.start()
        try:
            for number in range(ROUNDS):
                shop.change(
                    f"UPDATE orders SET amount = amount + 1 WHERE id % 7 = {number % 7};"
                    f"INSERT INTO orders VALUES ({1000 + number}, {1 + number % 20}, 5, now());"
                    f"DELETE FROM orders WHERE id = {999 + number};"
                    f"UPDATE customers SET name = name || '.' WHERE id = {1 + number}"
                )
                reader.looks_once()
        finally:
            over.set()
            for each in running:
                each.join()
    assert not unexpected, unexpected
    with shop.followed():
        shop.is_right()
    reader.never_went_back()


def test_on_one_machine_the_second_follower_is_refused(shop):
    first_one = threading.Event()
    over = threading.Event()

    def stop():
        first_one.set()
        return over.is_set()

    def follow_on():
        return follow(shop.specs, shop.settings(), stages=quiet, stop=stop, show=lambda _: None)

    running = threading.Thread(target=follow_on)
    running.start()
    try:
        assert first_one.wait(60)
        with pytest.raises(LockedError, match="follow") as caught:
            follow_on()
    finally:
        over.set()
        running.join()
    assert caught.value.exit_code == 5
    shop.is_right()
