"""When following makes a round, and what a refresh may build upon."""

from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    LogMovedError,
    RefusedAccessError,
    TableCopiedError,
    UnavailableError,
    UnavailableLogError,
    VerdictError,
    ViewError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.declared import DeclaredLog, ValueShape
from changelog.contract.rows.relation import TableName
from replay.broker.topics import NewestFrontier
from replay.cut.asof import AsOf
from tests.unit.replay.states import RECORD
from views.base.config import VerifyMode
from views.base.failure import RebuildError
from views.base.sections import LockOn
from views.generations.history import HistoryRow
from views.generations.lock import Moving
from views.rebuild import follow as following
from views.rebuild.apart import Apart, FollowCommand
from views.rebuild.follow import SeenFrontier, follow
from views.rebuild.one_view.refresh import Prior, WholeRefresh, prior_of
from views.rebuild.plan.plan import planned
from views.rebuild.rebuild import RebuildRun
from views.rebuild.result.report import Outcome, ViewResult

THINGS = [TableName("public", "things")]


def seen(*, offset=0, appended_ms=0, **changes) -> SeenFrontier:
    frontier = replace(RECORD.frontier, **changes)
    appended = RECORD.appended_ms + appended_ms
    return SeenFrontier.of(
        replace(RECORD, frontier=frontier, offset=RECORD.offset + offset, appended_ms=appended),
        THINGS,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"ends": {"things": (11, 20)}},
        {"epoch": 2},
        {"since": {"things": Position(1, Lsn(1), 0)}},
        {"whole": {"things": Lsn(1)}},
        {"topic_ids": {"things": "id-2"}},
        {"tables": {}},
    ],
    ids=str,
)
def test_what_changes_a_table_calls_for_a_round(changes) -> None:
    assert seen().calls_for_a_round(seen(offset=1, **changes), RECORD.appended_ms)


def test_a_frontier_without_news_calls_for_one_when_the_last_is_old() -> None:
    newer = seen(offset=1, lsn=Lsn(5000), ends={"things": (10, 20), "others": (5,)})
    assert not seen().calls_for_a_round(newer, RECORD.appended_ms + 1_000)
    assert seen().calls_for_a_round(newer, RECORD.appended_ms + 3_600_000)
    assert not seen().calls_for_a_round(seen(), RECORD.appended_ms + 3_600_000)


def row(generation, state="published", **more) -> HistoryRow:
    return HistoryRow(view="v", generation=generation, state=state, **more)


def test_what_serves_is_known_from_the_run_that_made_it() -> None:
    whole = {"epoch": 1, "lsn": "0/10", "definition": "d", "rows": 7}
    rows = [row(1, "sealed", **whole), row(1, **whole), row(2, **whole), row(1, note="rolled back")]
    found = prior_of(rows, 1, "place")
    assert found == Prior(1, Position(1, Lsn(16), 0), "d", 7, "place")
    for generation, path, why in (
        (None, None, "not every sink serves generation 1, as the history says"),
        (3, "place", "does not say"),
        (1, None, "no Delta sink"),
    ):
        prior = prior_of(rows, generation, path)
        assert isinstance(prior, WholeRefresh)
        assert why in prior.why
    never = prior_of([row(1, "sealed", **whole)], None, None)
    assert never == WholeRefresh("nothing serves yet in every sink")
    old = prior_of([row(1, epoch=1, lsn="0/10")], 1, "place")
    assert isinstance(old, WholeRefresh), "a history from before says nothing of definitions"


class Rounds:
    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.shown = []

    def __call__(self, *_, **__):
        return self

    def run_locked(self, _specs):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@dataclass
class Settings:
    """What `follow` asks of a run's settings."""

    project: Any
    frontier_topic: str
    logs: tuple
    rebuild: Any
    forward: bool = False
    looks: bool = False
    together: bool = False
    verify: VerifyMode = VerifyMode.CHANGED
    warehouse: str = "s3://nowhere"


@pytest.fixture
def followed(monkeypatch, tmp_path):
    """Follow with rounds as given, a frontier that always has news, and no waiting."""

    def run(rounds, logs=(), more=(), command=None, **options):
        offsets = iter(range(1_000))

        def read(*_):
            end = next(offsets)
            return replace(RECORD, frontier=replace(RECORD.frontier, ends={"things": (end,)}))

        monkeypatch.setattr(NewestFrontier, "read", read)
        monkeypatch.setattr(following, "rest", lambda *_: None)

        project = SimpleNamespace(root=tmp_path, kafka=KafkaConnection(brokers=""), slot="s")
        call: Any = follow  # what it is given here stands for a project and its views
        return call(
            [view_of("v", THINGS), *more],
            Settings(
                project=project,
                frontier_topic="f",
                logs=logs,
                rebuild=SimpleNamespace(
                    follow_seconds=0.1, follow_look_minutes=15, lock=LockOn.LOCAL
                ),
            ),
            stages=lambda: None,
            stop=lambda: not rounds.outcomes,
            show=rounds.shown.append,
            make=rounds,
            command=command,
            **options,
        )

    return run


def view_of(name: str, tables: Sequence[TableName]) -> Any:
    return SimpleNamespace(name=name, tables=tables, views=())


GOOD = Outcome((ViewResult(view="v", published=True),))


@pytest.mark.parametrize(("needs_spark", "stays_s"), [(False, 0.0), (True, 0.0), (False, 1e9)])
def test_spark_s_session_ends_once_no_round_needs_it(followed, monkeypatch, needs_spark, stays_s):
    monkeypatch.setattr(following, "_SPARK_STAYS_S", stays_s)
    monkeypatch.setattr(following.Follower, "needs_spark", needs_spark)
    ended: list[str] = []
    followed(Rounds(GOOD, GOOD), end_spark=lambda: ended.append("session"))
    assert bool(ended) is (not needs_spark and not stays_s)


@pytest.mark.parametrize("away", [UnavailableLogError("away"), LogMovedError("another leader")])
def test_what_passes_is_waited_for(followed, away) -> None:
    rounds = Rounds(away, Outcome((ViewResult(view="v"),), away), GOOD)
    assert followed(rounds).error is None
    assert rounds.shown == [GOOD]


def test_brokers_that_do_not_say_who_holds_the_locks_are_waited_for(followed, monkeypatch) -> None:
    away = [UnavailableError("the topic of the locks does not answer")]
    sound = Moving.__enter__

    def enter(moving):
        if away:
            raise away.pop()
        return sound(moving)

    monkeypatch.setattr(Moving, "__enter__", enter)
    rounds = Rounds(GOOD)
    assert followed(rounds).error is None
    assert (rounds.shown, away) == ([GOOD], [])


@pytest.mark.parametrize("error", [UnavailableLogError, RefusedAccessError])
def test_brokers_that_are_away_at_the_start_are_waited_for(followed, monkeypatch, error) -> None:
    away: list[Exception] = [error("the brokers do not answer")] * 2

    @contextmanager
    def locked(*_):
        if away:
            raise away.pop()
        yield

    monkeypatch.setattr(following, "following", locked)
    rounds = Rounds(GOOD)
    if error is RefusedAccessError:  # a matter of configuration
        with pytest.raises(RefusedAccessError):
            followed(rounds)
        return
    assert followed(rounds).error is None
    assert (rounds.shown, away) == ([GOOD], [])


def test_a_table_that_is_copied_again_is_waited_for(followed) -> None:
    command = FollowCommand(lambda names: names, {})
    copied = TableCopiedError("it is copied anew, since a column has another type")
    both = Outcome.of(ViewResult(view=name, error=copied) for name in "vw")
    rounds = Rounds(GOOD, both, both, GOOD)
    assert followed(rounds, more=[view_of("w", THINGS)], command=command).error is None
    assert rounds.shown == [GOOD, GOOD]
    past = VerdictError("past")
    one = Outcome.of([ViewResult(view="v", error=past), ViewResult(view="w", error=copied)])
    rounds = Rounds(GOOD, one, GOOD)
    assert followed(rounds, more=[view_of("w", THINGS)], command=command).error is past


def test_what_waiting_does_not_heal_ends_it(followed) -> None:
    past = VerdictError("past")
    rounds = Rounds(GOOD, past, GOOD)
    assert followed(rounds).error is past
    assert rounds.outcomes == [GOOD]


def test_a_view_that_fails_is_followed_apart_and_the_others_go_on(followed, monkeypatch) -> None:
    begun: list[tuple[str, ...]] = []
    monkeypatch.setattr(Apart, "_start", lambda _, names: begun.append(names))
    past = VerdictError("past")
    good, bad = ViewResult(view="v", published=True), ViewResult(view="w", error=past)
    rounds = Rounds(GOOD, Outcome.of([good, bad]), *[GOOD] * 3)
    command = FollowCommand(lambda names: names, {})
    assert followed(rounds, more=[view_of("w", THINGS)], command=command).error is None
    assert rounds.outcomes == []
    assert begun == [("w",)]


def test_views_that_all_fail_end_it(followed) -> None:
    past = VerdictError("past")
    both = Outcome.of(ViewResult(view=name, error=past) for name in "vw")
    rounds = Rounds(both, GOOD)
    command = FollowCommand(lambda names: names, {})
    assert followed(rounds, more=[view_of("w", THINGS)], command=command).error is past


def test_a_round_that_is_asked_to_stop_is_no_failure(followed) -> None:
    rounds = Rounds(Outcome((), VerdictError("asked to stop")))
    assert followed(rounds).error is None


def test_logs_of_other_programs_are_followed_apart(followed) -> None:
    other = TableName("public", "others")
    declared = DeclaredLog(table=other, topic="t", shape=ValueShape.FLAT_JSON, key=("id",))
    with pytest.raises(ViewError, match="w: logs of other programs and captures"):
        followed(Rounds(GOOD), logs=(declared,), more=[view_of("w", (other,))])


def test_nor_have_they_an_older_state() -> None:
    declared = DeclaredLog(table=THINGS[0], topic="t", shape=ValueShape.FLAT_JSON, key=("id",))
    moment = AsOf("0/1", lsn=Lsn(1))
    settings: Any = SimpleNamespace(project=None, logs=(declared,), as_of=moment, archive=None)
    spec: Any = SimpleNamespace(name="v", tables=THINGS, views=())
    with pytest.raises(ViewError, match="no older state"):
        planned([spec], settings)


class CancelledResident:
    """Is ended while it takes what it needs for the next rounds."""

    is_ready = True

    def begin(self, *_: object) -> None:
        raise RuntimeError("the jobs were cancelled")

    def forget(self) -> None:
        self.is_ready = False


@pytest.mark.parametrize("is_asked_to_end", [True, False])
def test_a_follower_that_is_asked_to_end_needs_nothing_for_a_next_round(
    is_asked_to_end: bool,
) -> None:
    made: Any = RebuildRun.__new__(RebuildRun)
    made._resident = CancelledResident()
    made._run = SimpleNamespace(stop=lambda: is_asked_to_end, stages=None)
    failed = pytest.raises(RebuildError, match=r"holding the rows .*: the jobs were cancelled")
    with nullcontext() if is_asked_to_end else failed:
        made._hold(None, SimpleNamespace(unkeyed=()), [], [], object())
    assert made._resident.is_ready is not is_asked_to_end


def test_memory_is_given_back_after_a_first_and_a_large_round(monkeypatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(following, "leave_code", lambda: done.append("code"))
    made: Any = following.Follower.__new__(following.Follower)
    made._is_settled = False
    made._resident = SimpleNamespace(return_freed=lambda: done.append("freed"))
    given = []
    for read in (5, 5, 10_001):
        done.clear()
        made._settle(Outcome((ViewResult(view="v", records_read=read),)))
        given.append(list(done))
    assert given == [["freed", "code"], [], ["freed"]]
