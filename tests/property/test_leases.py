"""Leases: processes that claim, renew, stand still and die, on a log that is cleaned meanwhile."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from views.leases import decide
from views.leases.decide import Lock
from views.leases.record import LeaseRecord, LeaseStep, Owner, Placed

TTL, LAG = 10, 80
OWNER = Owner(host="h", pid=1, started="now", command="c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.sampled_from([1, 3, 4, 11, 50, 100])),
        st.tuples(st.sampled_from(["claim", "beat", "work", "release", "die"]), st.integers(0, 2)),
        st.tuples(st.just("clean"), st.just(0)),
    ),
    max_size=60,
)


class BrokenError(AssertionError):
    """A law does not hold."""


@dataclass
class Process:
    """One that goes by what it has read; it may stand still between any two of its steps."""

    number: int
    read: int = 0
    lock: Lock = field(default_factory=Lock)
    lives: int = 0
    token: int | None = None
    until: int = 0

    @property
    def id(self):
        return f"{self.number}.{self.lives}"

    @property
    def holds(self):
        return self.token is not None and self.lock.is_held_by(self.id, self.token)


@dataclass
class World:
    """The topic, the brokers' clock and three processes."""

    now: int = 0
    log: list[Placed] = field(default_factory=list)
    whole: list[Placed] = field(default_factory=list)
    processes: list[Process] = field(default_factory=lambda: [Process(n) for n in range(3)])

    def write(self, one, step):
        record = None
        if step is not None:
            record = LeaseRecord(step=step, seen=one.read - 1, ttl_ms=TTL, owner=OWNER)
        placed = Placed(offset=len(self.whole), at_ms=self.now, lock="l", id=one.id, record=record)
        self.log.append(placed)
        self.whole.append(placed)

    def look(self, one):
        one.lock = after(one.lock, [each for each in self.log if each.offset >= one.read])
        one.read = len(self.whole)

    def claim(self, one):
        if one.token is not None:
            return
        one.lives += 1
        one.read, one.lock = 0, Lock()  # a new process, which knows nothing
        holder = after(Lock(), self.whole).tenure
        self.write(one, LeaseStep.CLAIM)
        self.look(one)
        tenure = one.lock.tenure
        if tenure is not None and tenure.id == one.id:
            one.token, one.until = tenure.token, self.now + TTL
            if holder is not None and not holder.is_over and holder.until_ms >= self.now:
                raise BrokenError("a lease that had not ended was given away")
        # Who is refused may die before it takes its claim back.

    def beat(self, one):
        if one.token is None:
            return
        if one.until < self.now:
            self.look(one)
        if one.holds:
            self.write(one, LeaseStep.RENEW)
            one.until = self.now + TTL
            self.look(one)
        if not one.holds:
            one.token = None

    def late(self, one):
        """Renew behind a pause that came after all looking."""
        if one.token is None:
            return
        holder = after(Lock(), self.whole).tenure
        self.write(one, LeaseStep.RENEW)
        if after(Lock(), self.whole).tenure.id != holder.id:
            raise BrokenError("a renewal took the lock from who had it")

    def work(self, one):
        if one.token is None:
            return
        self.look(one)
        if not one.holds:
            one.token = None
            return
        newest = after(Lock(), self.whole).tenure
        if newest is None or newest.id != one.id:
            raise BrokenError("somebody works whose lock another one has")
        for other in self.processes:
            if other is not one and other.token is not None:
                before = (other.read, other.lock)
                self.look(other)
                if other.holds:
                    raise BrokenError("two hold the lock")
                other.read, other.lock = before

    def release(self, one):
        if one.token is not None:
            self.look(one)
            if one.holds:
                self.write(one, LeaseStep.RELEASE)
            one.token = None

    def die(self, one):
        one.token = None

    def clean(self):
        """Drop what a cleaner may: a record behind which a newer one of its key is old enough."""
        last = {each.id: each.offset for each in self.log}
        newer_at: dict[str, int] = {}
        kept = []
        for each in reversed(self.log):
            superseded = newer_at.get(each.id)
            newer_at[each.id] = each.at_ms
            if superseded is None or self.now - superseded < LAG or each.offset == last[each.id]:
                kept.append(each)
        self.log = kept[::-1]

    def agree(self):
        """Ask a reader who comes now whether he finds the lock as it is."""
        placed = Placed(
            offset=len(self.whole),
            at_ms=self.now,
            lock="l",
            id="probe",
            record=LeaseRecord(step=LeaseStep.CLAIM, seen=-1, ttl_ms=TTL, owner=OWNER),
        )
        granted = [
            tenure.id == "probe" if (tenure := after(Lock(), [*log, placed]).tenure) else None
            for log in (self.log, self.whole)
        ]
        if granted[0] != granted[1]:
            raise BrokenError("a cleaned log grants what the whole one does not, or refuses it")


def after(lock, log):
    for placed in log:
        lock = lock.then(placed)
    return lock


def lived(steps):
    world = World()
    for step, value in steps:
        if step == "tick":
            # Who lives renews; who stood still longer than a lease is drawn by larger ticks.
            world.now += value
        elif step == "clean":
            world.clean()
            world.agree()
        else:
            getattr(world, step)(world.processes[value])
    world.agree()


def breaks(steps):
    try:
        lived(steps)
    except BrokenError:
        return True
    return False


@given(STEPS)
@settings(max_examples=400)
def test_one_at_a_time_has_a_lock_whoever_stands_still_or_dies(steps):
    lived(steps)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("tick"), st.sampled_from([1, 4, 11])),
            st.tuples(
                st.sampled_from(["claim", "beat", "work", "release", "die", "late"]),
                st.integers(0, 2),
            ),
        ),
        max_size=60,
    )
)
@settings(max_examples=400)
def test_who_stood_still_within_a_renewal_takes_nothing_from_who_came_after(steps):
    lived(steps)


STEALS = [("claim", 0), ("tick", 4), ("claim", 1)]
OVERTAKES = [("claim", 0), ("tick", 11), ("claim", 1), ("late", 0)]


def test_a_lock_that_is_granted_to_whoever_asks_is_noticed(monkeypatch):
    lived(STEALS)
    monkeypatch.setattr(decide, "_counts", lambda *_: True)
    assert breaks(STEALS)


def test_a_renewal_that_counts_behind_another_holder_is_noticed(monkeypatch):
    real = decide._counts
    lived(OVERTAKES)
    monkeypatch.setattr(
        decide, "_counts", lambda *all_of: all_of[2].step is LeaseStep.RENEW or real(*all_of)
    )
    assert breaks(OVERTAKES)


def test_a_claim_that_lost_against_a_record_that_was_cleaned_is_noticed(monkeypatch):
    steps = [("claim", 0), ("claim", 1), ("die", 1)]
    for _ in range(40):
        steps += [("tick", 4), ("beat", 0)]
    steps += [("clean", 0), ("claim", 2)]
    lived(steps)
    real = decide._counts
    monkeypatch.setattr(
        decide,
        "_counts",
        lambda tenure, placed, record: real(tenure, placed, replace(record, seen=-1)),
    )
    assert breaks(steps)


def test_a_dead_ones_lock_is_free_once_its_lease_has_ended():
    for waited, is_free in [(10, False), (11, True)]:
        world = World()
        world.claim(world.processes[0])
        world.die(world.processes[0])
        world.now += waited
        world.claim(world.processes[1])
        assert world.processes[1].holds is is_free


def test_nobody_waits_for_a_dead_process_beside_the_same_local_locks():
    def claim(offset, one, place):
        record = LeaseRecord(
            step=LeaseStep.CLAIM, seen=-1, ttl_ms=TTL, owner=OWNER, place=place, building=(7,)
        )
        return Placed(offset=offset, at_ms=0, lock="l", id=one, record=record)

    for place, other, holder in [("p", "p", "b"), ("p", "q", "a"), ("", "", "a")]:
        lock = after(Lock(), [claim(0, "a", place), claim(1, "b", other)])
        assert lock.tenure.id == holder
        assert lock.tenure.unremoved == ((7,) if holder == "b" else ())
