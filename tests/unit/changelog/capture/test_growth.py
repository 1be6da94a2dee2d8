"""Topics that get more partitions are told until nothing from before is alive."""

from __future__ import annotations

import time

from changelog.capture.state.start_state import StartState
from changelog.capture.write.topic_watch import GrowthWatch
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Growth

THREE, SIX, NINE = ((0,) * count for count in (3, 6, 9))


def look(watch, ends, lsn, since=None):
    return watch.look({"t": ends}, {} if since is None else {"t": since}, lsn=Lsn(lsn), epoch=1)


def test_a_topic_that_grows_is_told_from_the_frontier_before_on():
    watch = GrowthWatch()
    before_ms = time.time_ns() // 1_000_000
    assert look(watch, THREE, 100) == {}
    after_ms = time.time_ns() // 1_000_000
    found = look(watch, SIX, 200)["t"]
    assert found.lsn == 200
    assert before_ms <= found.ms <= after_ms
    assert look(watch, SIX, 300)["t"] == found


def test_it_is_over_when_all_that_is_alive_was_written_since():
    watch = GrowthWatch({"t": Growth(5, Lsn(200))}, {"t": 6})
    assert look(watch, SIX, 300, Position(1, Lsn(199), 0)) == {"t": Growth(5, Lsn(200))}
    assert look(watch, SIX, 400, Position(1, Lsn(200), 0)) == {}


def test_rows_that_a_life_before_has_copied_may_lie_anywhere():
    watch = GrowthWatch({"t": Growth(5, Lsn(200))}, {"t": 6}, at_start={"t": 6}, begun=Lsn(300))
    assert look(watch, SIX, 250, Position(1, Lsn(299), 0)) == {"t": Growth(5, Lsn(300))}
    assert look(watch, SIX, 400, Position(1, Lsn(300), 0)) == {}


def test_a_life_is_over_that_did_not_know_of_the_partitions():
    watch = GrowthWatch({}, {"t": 3}, at_start={"t": 6})
    look(watch, SIX, 300)
    assert watch.unknown() == set()
    look(watch, NINE, 400)
    assert watch.unknown() == {"t"}


def test_what_was_sent_to_a_topic_that_grew_is_sent_again():
    written = {topic: {0: Position(1, Lsn(300), 0)} for topic in ("same", "more", "grown", "new")}
    known = {"same": 3, "more": 3, "grown": 6}
    grown = {"grown": Growth(5, Lsn(200))}
    seed = StartState(epoch=1, lsn=Lsn(250), grown=grown, partitions=known, written=written)
    seed.resend_grown({"same": 3, "more": 6, "grown": 6, "new": 3})
    assert set(seed.written) == {"same", "new"}


def test_growth_while_capture_was_away_is_noticed_at_the_first_frontier():
    watch = GrowthWatch({}, {"t": 3}, ms=7)
    assert look(watch, SIX, 300) == {"t": Growth(7, Lsn(300))}


def test_who_grows_again_is_not_let_off_by_a_copy_of_in_between():
    watch = GrowthWatch({"t": Growth(5, Lsn(200))}, {"t": 6})
    assert look(watch, NINE, 400, Position(1, Lsn(300), 0)) == {"t": Growth(5, Lsn(400))}
