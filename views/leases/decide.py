"""Decide from the records alone who holds a lock, so that every reader decides the same.

Records are judged in the order of their offsets, and time is the brokers' (`LogAppendTime`): no
host's clock is asked.

- A *claim* is granted if nobody holds the lock, if the last holder gave it back, or if his lease
  had ended before the brokers took the claim. It is granted too if it comes from the same folder of
  local locks on the same machine: who writes it has the file's lock, so the holder is dead.
- A *renewal* counts as long as nobody else was granted the lock since, even a late one: nobody
  worked meanwhile. Behind another's claim it counts for nothing, for ever.
- A *release* of the holder sets the lock free. What any other writes changes nothing.

The topic is compacted and keyed by lock and claim. What a cleaner takes of a claim are its earlier
records, so a claim that lost against records that are gone may look granted. A renewal says how far
its writer had read: one that has seen the apparent grant and still renews knows better. The lag of
the compaction is many renewals long, so that this mends itself before anything of it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from views.leases.record import LeaseRecord, LeaseStep, Owner, Placed

_MOST_LEFT = 50
"""Number of unremoved generations that are remembered: the highest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """Somebody's time with a lock."""

    id: str  # the claim
    token: int  # the offset of the record that was granted; grows from holder to holder
    offset: int  # that of the newest record which counts
    until_ms: int  # when others may have it, by the brokers' clock
    is_over: bool  # whether it was given back
    owner: Owner  # who it is
    place: str  # where it has its local locks
    building: tuple[int, ...] = ()  # the generations that it builds
    unremoved: tuple[int, ...] = ()  # generations of earlier holders that nobody has removed


@dataclass(frozen=True, slots=True)
class Lock:
    """The state of a lock according to the records read so far."""

    tenure: Tenure | None = None  # the newest one, None before the first
    # claims that were not granted, with the moment until which they count
    waiting: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    claims: frozenset[str] = frozenset()  # all that the topic has a record of

    def then(self, placed: Placed) -> Lock:
        """Return the state of the lock after the next record."""
        if placed.record is None:
            return self._without(placed)
        lock = replace(self, claims=self.claims | {placed.id})
        if not _counts(self.tenure, placed, placed.record):
            return lock._refused(placed, placed.record)
        waiting = {one: until for one, until in self.waiting.items() if one != placed.id}
        return replace(lock, tenure=_granted(self.tenure, placed, placed.record), waiting=waiting)

    def is_held_by(self, claim: str, token: int) -> bool:
        """Tell whether a claim still has the lock, in the tenure that began with a token."""
        tenure = self.tenure
        return (
            tenure is not None
            and not tenure.is_over
            and (tenure.id, tenure.token) == (claim, token)
        )

    def _refused(self, placed: Placed, record: LeaseRecord) -> Lock:
        if record.step is not LeaseStep.CLAIM:
            return self
        return replace(self, waiting={**self.waiting, placed.id: placed.at_ms + record.ttl_ms})

    def _without(self, placed: Placed) -> Lock:
        tenure = self.tenure
        if tenure is not None and tenure.id == placed.id:
            tenure = replace(tenure, offset=placed.offset, is_over=True)
        waiting = {one: until for one, until in self.waiting.items() if one != placed.id}
        return Lock(tenure, waiting, self.claims - {placed.id})


def _counts(tenure: Tenure | None, placed: Placed, record: LeaseRecord) -> bool:
    if tenure is None:
        return True
    if tenure.id == placed.id:
        return not tenure.is_over or record.step is LeaseStep.CLAIM
    if record.step is LeaseStep.CLAIM:
        is_same = bool(record.place) and record.place == tenure.place
        return tenure.is_over or is_same or placed.at_ms > tenure.until_ms
    return record.step is LeaseStep.RENEW and record.seen >= tenure.offset


def _granted(tenure: Tenure | None, placed: Placed, record: LeaseRecord) -> Tenure:
    goes_on = tenure is not None and tenure.id == placed.id and not tenure.is_over
    unremoved = set(record.unremoved)
    if tenure is not None:
        unremoved.update(tenure.unremoved)
        if tenure.id != placed.id and not tenure.is_over:
            unremoved.update(tenure.building)
    return Tenure(
        id=placed.id,
        token=tenure.token if goes_on and tenure is not None else placed.offset,
        offset=placed.offset,
        until_ms=placed.at_ms + record.ttl_ms,
        is_over=record.step is LeaseStep.RELEASE,
        owner=record.owner,
        place=record.place,
        building=record.building,
        unremoved=tuple(sorted(unremoved)[-_MOST_LEFT:]),
    )
