"""The verdict against a model of the cleaner: what it allows is exact, whatever the cleaner does.

`fold(clean(log)) == fold(log)` for every legal cleaning, at any moment of a read, as long as the
verdict says so before the read and again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.broker.topic_state import AfterEnds, TopicState
from replay.verdict import limits
from replay.verdict.limits import VerdictTimes, longest_cleaning_ms
from replay.verdict.verdict import Verdict, judge
from tests.support import model
from tests.support.cleaner import Partition, Scan
from tests.support.examples import examples
from tests.support.model import Entry

PERIODS = st.sampled_from([(100, 300), (300, 100)])
"""Lag and retention: each may be the shorter one."""
KEYS = st.integers(0, 3).map(lambda number: b"%d" % number)
Step = Callable[["World"], None]


@dataclass
class World:
    """A partition, what was ever written to it, and a cleaning that may be under way."""

    partition: Partition
    written: list[Entry] = field(default_factory=list)
    cleaning: Iterator[None] | None = None
    cleaning_until_ms: int = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self.written.append(self.partition.append(key, value).entry)

    def pass_time(self, ms: int) -> None:
        """A cleaning that would take longer than is allowed for is stopped."""
        self.partition.now_ms += ms
        if self.partition.now_ms > self.cleaning_until_ms:
            self.cleaning = None

    def clean(self, start: int, back: int, steps: int) -> None:
        if self.cleaning is None:
            partition = self.partition
            end = max(0, partition.cleanable - back)
            self.cleaning = partition.clean(start=start, end=end)
            allowed = longest_cleaning_ms(partition.retention_ms)
            self.cleaning_until_ms = partition.now_ms + allowed
        for _ in range(steps):
            if next(self.cleaning, self) is self:
                self.cleaning = None
                return

    def state(self) -> TopicState:
        return TopicState(
            topic="t",
            topic_id="id",
            cluster_id="c",
            settings={
                "cleanup.policy": "compact",
                "message.timestamp.type": "LogAppendTime",
                "min.compaction.lag.ms": str(self.partition.lag_ms),
                "delete.retention.ms": str(self.partition.retention_ms),
            },
            log_starts=(0,),
            ends=(self.partition.end,),
            leader_epochs=(0,),
        )

    def frontier(self) -> FrontierRecord:
        frontier = Frontier(
            slot="s",
            epoch=1,
            lsn=Lsn(self.partition.end),
            ts_us=0,
            cluster_id="c",
            tables={"t": TableName("public", "t")},
            topic_ids={"t": "id"},
            ends={"t": (self.partition.end,)},
        )
        return FrontierRecord(frontier, 0, self.partition.now_ms)

    def judged(self, record: FrontierRecord, started_ms: int, resumed=None) -> Verdict:
        (end,) = record.frontier.ends["t"]
        behind = self.partition.records(end)
        return judge(
            record,
            {"t": self.state()},
            ("t",),
            VerdictTimes(
                started_ms=started_ms,
                asked_ms=self.partition.now_ms,
                now_ms=self.partition.now_ms,
                estimate_ms=None,
                allowance_ms=0,
            ),
            after_ends={"t": AfterEnds(first_ms=(behind[0].appended_ms if behind else None,))},
            resumed=resumed,
        )


def append(key: bytes, value: bytes | None) -> Step:
    return lambda world: world.append(key, value)


def tick(ms: int) -> Step:
    return lambda world: world.pass_time(ms)


def roll(world: World) -> None:
    world.partition.roll()


def marker(world: World) -> None:
    world.partition.append(None, None)


def clean(start: int, back: int, steps: int) -> Step:
    return lambda world: world.clean(start, back, steps)


def clean_all(world: World) -> None:
    world.cleaning = None
    world.clean(0, 0, 99)


def forget(world: World) -> None:
    """Clean, wait until tombstones may go, and clean again."""
    clean_all(world)
    world.pass_time(world.partition.retention_ms)
    clean_all(world)


def age(world: World) -> None:
    """Let all that is there grow old enough to be cleaned."""
    world.partition.roll()
    world.append(b"other", b"")
    world.pass_time(world.partition.lag_ms)


TIMES = st.sampled_from([1, 10, 30, 60, 100, 150, 300])
APPENDS = st.one_of(
    st.builds(append, KEYS, st.binary(min_size=1, max_size=1)), st.builds(append, KEYS, st.none())
)
CLEANINGS = st.builds(
    clean, st.sampled_from([0, 99]), st.sampled_from([0, 0, 0, 1]), st.integers(1, 4)
)
STEPS = st.one_of(
    APPENDS,
    APPENDS,
    st.just(roll),
    st.builds(tick, TIMES),
    CLEANINGS,
    st.just(clean_all),
    st.just(forget),
    st.just(age),
    st.just(marker),
)
BEFORE = st.lists(STEPS, min_size=3, max_size=25)
BETWEEN = st.lists(STEPS, max_size=8)
READS = st.lists(st.tuples(st.integers(1, 4), st.lists(STEPS, max_size=6)), min_size=1, max_size=6)


def run(world: World, steps: list[Step]) -> None:
    for step in steps:
        step(world)


def read(world: World, scan: Scan, reads: list[tuple[int, list[Step]]]) -> None:
    for count, meanwhile in reads:
        scan.step(count)
        run(world, meanwhile)
    while not scan.is_done:
        scan.step(1)


def is_exact_after(world: World, first: Verdict, record: FrontierRecord, started_ms: int, **more):
    """Judge again as a replay does after its scan."""
    again = world.judged(record, started_ms, **more)
    return not first.is_late(world.partition.now_ms) or again.allows_read


def check_a_scan(periods, before, between, reads) -> bool:
    """Scan from the start to a frontier; give whether that was exact by the verdict."""
    world = World(Partition(*periods))
    run(world, before)
    record = world.frontier()
    expected = model.fold(world.written)
    run(world, between)
    started_ms = world.partition.now_ms
    verdict = world.judged(record, started_ms)
    scan = Scan(world.partition, record.frontier.ends["t"][0])
    read(world, scan, reads)
    if not (verdict.allows_read and is_exact_after(world, verdict, record, started_ms)):
        return False
    assert model.fold(scan.seen) == expected
    return True


def check_going_on(periods, before, between, away, reads) -> bool:
    """Read what came after a frontier, on top of its state; give whether that was exact."""
    world = World(Partition(*periods))
    run(world, before)
    stored = world.frontier()
    state = list(world.written)
    run(world, away)
    record = world.frontier()
    expected = model.fold(world.written)
    run(world, between)
    started_ms = world.partition.now_ms
    verdict = world.judged(record, started_ms, stored)
    scan = Scan(world.partition, record.frontier.ends["t"][0], at=stored.frontier.ends["t"][0])
    read(world, scan, reads)
    if not (
        verdict.allows_read and is_exact_after(world, verdict, record, started_ms, resumed=stored)
    ):
        return False
    assert model.fold([*state, *scan.seen]) == expected
    return True


SCANS = st.tuples(PERIODS, BEFORE, BETWEEN, READS)
GOING_ON = st.tuples(PERIODS, BEFORE, BETWEEN, st.lists(STEPS, max_size=25), READS)


@given(SCANS)
@examples(200)
def test_what_the_verdict_allows_is_exact_whatever_the_cleaner_does(drawn):
    check_a_scan(*drawn)


@given(GOING_ON)
@examples(200)
def test_going_on_from_a_stored_state_is_exact_as_long_as_the_verdict_allows_it(drawn):
    check_going_on(*drawn)


def without(word: str):
    """Return the limits without those that name a setting: the seeded defect."""

    def fewer(*arguments):
        found = [each for each in limits.limits(*arguments) if word not in each.why]
        return found or [limits.Limit(2**62, "never", "")]

    return fewer


def from_the_frontier_alone(record, state, after_ends, resumed, times):
    """Return the limits of one who does not look what stands behind the ends."""
    nothing = AfterEnds(first_ms=(None,))
    return limits.limits(record, state, nothing, resumed, times)


SUPERSEDED: Any = (
    (100, 300),
    [append(b"0", b"old"), age],
    [append(b"0", b"new"), age, clean_all],
    [(1, [])],
)
OUTLIVED: Any = ((300, 100), [append(b"0", b"old"), append(b"0", None), age], [], [(1, [forget])])
AWAY: Any = (
    (100, 300),
    [append(b"0", b"old"), age],
    [],
    [append(b"0", None), age, forget],
    [(1, [])],
)
DEFECTS: dict[str, tuple[Any, Any, Any]] = {
    "the lag does not count": (check_a_scan, SUPERSEDED, without("of the frontier")),
    "nobody looks behind the ends": (check_a_scan, SUPERSEDED, from_the_frontier_alone),
    "the retention does not count": (check_a_scan, OUTLIVED, without("of the scan")),
    "the age of a stored state does not count": (check_going_on, AWAY, without("stored")),
}


def test_a_read_in_time_is_exact_while_the_cleaner_works():
    cleaned = [append(b"0", b"1"), age, append(b"0", b"2"), append(b"1", None), age, clean_all]
    reads = [(1, [append(b"0", b"3"), roll, tick(10), clean_all])]
    assert check_a_scan((100, 300), cleaned, [], reads)
    assert check_going_on((100, 300), cleaned, [], cleaned, reads)


@pytest.mark.parametrize(("is_map_sharp", "revived"), [(True, {}), (False, {b"0": b"old"})])
def test_a_map_that_is_full_within_a_segment_starts_a_tombstone_s_clock_early(
    is_map_sharp, revived
):
    """What the verdict takes on trust: it holds while such a cleaner does not rest for long."""
    partition = Partition(lag_ms=0, retention_ms=300)
    for value in (b"old", None):
        partition.append(b"0", value)
        partition.roll()
    partition.segments[:2] = [partition.segments[0] + partition.segments[1], []]
    partition.roll()
    first = partition.clean(start=0, end=1, is_map_sharp=is_map_sharp)
    assert list(first) == [None]
    partition.now_ms += 1000
    scan = Scan(partition, 2)
    scan.step(1)
    assert list(partition.clean(start=0, end=2)) == [None]
    scan.step(9)
    assert model.fold(scan.seen) == revived


@pytest.mark.parametrize("defect", DEFECTS)
def test_twin_a_verdict_that_forgets_a_limit_allows_a_wrong_read(monkeypatch, defect):
    check, drawn, replacement = DEFECTS[defect]
    assert not check(*drawn)
    monkeypatch.setattr("replay.verdict.verdict.limits", replacement)
    with pytest.raises(AssertionError):
        check(*drawn)
