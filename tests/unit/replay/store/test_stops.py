"""Where layers end on the way to a frontier."""

from dataclasses import replace
from typing import Any

import pytest

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from replay.base.config import ReplaySettings
from replay.base.record_place import cut_of
from replay.store.checkpoint import Checkpoint, Manifest
from replay.store.plan import Advance, TopicStep
from replay.store.stops import Stops
from replay.verdict.verdict import Verdict, VerdictKind
from tests.unit.replay.states import RECORD
from tests.unit.replay.store.test_checkpoint import made

BEGINS = cut_of(RECORD.frontier)


def at(bytes_on: int) -> Position:
    return BEGINS._replace(commit_lsn=Lsn(BEGINS.commit_lsn + bytes_on))


def plan(checkpoint: Checkpoint | None, *, needs_no_read: bool = False) -> Advance:
    """Return what leads ten bytes on."""
    lsn = Lsn(RECORD.frontier.lsn + 10)
    step = TopicStep(
        topic="things", manifest=Manifest(), checkpoint=checkpoint, needs_no_read=needs_no_read
    )
    return Advance(
        record=replace(RECORD, frontier=replace(RECORD.frontier, lsn=lsn)),
        topics={},
        steps={"things": step},
        states={},
        verdict=Verdict(VerdictKind.EXACT, None, ()),
        started_ms=0,
        settings=ReplaySettings(),
    )


class AskedError(Exception):
    """The log was asked for frontiers."""


@pytest.mark.parametrize(
    ("bytes_on", "found", "is_asked"),
    [
        (0, plan(made(1)), False),  # a layer ends there anyhow
        (1, plan(made(1)), True),
        (9, plan(made(1)), True),
        (10, plan(made(1)), False),
        (5, plan(made(1), needs_no_read=True), False),  # nothing is read
        (5, plan(None), False),  # all is read: there is nothing to go on from
    ],
)
def test_only_inside_of_what_is_read_behind_a_checkpoint(monkeypatch, bytes_on, found, is_asked):
    def asked(*_: object) -> list[object]:
        raise AskedError

    nothing: Any = None
    monkeypatch.setattr("replay.store.stops.read_frontiers", asked)
    stops = Stops(kafka=nothing, store=nothing, topic="frontiers", places=[at(bytes_on)])
    if is_asked:
        with pytest.raises(AskedError):
            stops.before(found, nothing)
    else:
        assert stops.before(found, nothing) is found
