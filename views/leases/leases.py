"""Holds locks that hold across machines: claims them, keeps them alive, and checks them.

A lease lasts `ttl_s` from its last renewal, which a thread writes every third of that. A process
that stands still for longer may lose its locks to another one, and finds out before it does
anything that readers see: `confirm` reads the topic to its end. What was confirmed a moment ago
cannot have been lost since, unless this process stood still in between; so whoever moves readers
asks before each step, and once more behind the last.
"""

from __future__ import annotations

import hashlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from changelog.contract.base.errors import ChangelogError, LockedError
from views.leases.decide import Lock, Tenure
from views.leases.record import LeaseRecord, LeaseStep, Owner, key_of
from views.leases.topic import LeaseTopic

log = logging.getLogger("changelog.views")

_LOOK_S = 0.1
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class LeaseLostError(LockedError):
    """Another process was granted the lock: this one stood still, or did not reach the brokers."""


@dataclass(slots=True)
class _Held:
    """A lock that this process has."""

    id: str  # the claim
    token: int  # the offset at which its tenure began
    until: float  # when it ends unless it is renewed, by this machine's clock in seconds
    building: tuple[int, ...] = ()  # the generations that it builds
    is_lost: bool = False  # whether another one was granted it


class Leases:
    """The locks of one process on one topic.

    `connect`: opens the topic; asked where a lock is wanted and there is no connection. `ttl_s`:
    how long a lease lasts. `place`: of the local locks beside it, from `place_of`.
    """

    def __init__(self, connect: Callable[[], LeaseTopic], *, ttl_s: float, place: str) -> None:
        self._connect, self._ttl_s, self._place = connect, ttl_s, place
        self._mutex = threading.RLock()
        self._topic: LeaseTopic | None = None
        self._locks: dict[str, Lock] = {}
        self._held: dict[str, _Held] = {}
        self._users = 0
        self._ended = threading.Event()
        self._beat: threading.Thread | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open a connection, and a thread that renews the leases held.

        Raises UnavailableError: the brokers do not answer; ChangelogError: they refuse.
        """
        with self._mutex:
            if self._topic is None:
                self._topic = self._connect()
                self._ended = threading.Event()
                self._beat = threading.Thread(
                    target=self._keep_alive, args=(self._ended,), name="leases", daemon=True
                )
                self._beat.start()
            self._users += 1
        try:
            yield
        finally:
            self._close()

    @contextmanager
    def holding(self, taken: Mapping[str, str], is_over: Callable[[], bool]) -> Iterator[None]:
        """Hold all of some locks, or none.

        `taken`: for each lock the beginning of the error if it is taken. `is_over`: tells whether
        to wait no longer.

        Raises:
            LockedError: somebody else has one; names who, and until when.
            UnavailableError: the brokers do not answer.
        """
        with self.open():
            self.claim(taken, is_over)
            try:
                yield
            finally:
                self.release(taken)

    def claim(self, taken: Mapping[str, str], is_over: Callable[[], bool]) -> None:
        """Take locks, all or none; between `open`'s bounds, and to be released. See `holding`."""
        ids = {lock: uuid.uuid4().hex for lock in taken}
        is_told = False
        while refused := self._refused(ids):
            holder = self._tenure(refused[0])
            message = f"{taken[refused[0]]}: {described(holder)}"
            if is_over():
                self._write({key_of(lock, ids[lock]): None for lock in refused})
                raise LockedError(
                    message,
                    hint="wait for it (--wait SECONDS), or end that process; the lock of a dead "
                    "one ends by itself",
                )
            if not is_told:
                log.info("waits for a lock: %s", message)
                is_told = True
            self._wait(refused, is_over)

    def hold_on(self, taken: Mapping[str, str], is_over: Callable[[], bool]) -> None:
        """Take locks unless this process still has all of them; waiting claims come first."""
        with self._mutex:
            self._look()
            mine = [lock for lock in taken if lock in self._held]
            if len(mine) == len(taken) and not any(self._held[lock].is_lost for lock in mine):
                if any(self._is_short(self._held[lock]) for lock in mine):
                    self._renew()
                if not any(self._held[lock].is_lost for lock in mine):
                    return
            self.release(mine)
        self._let_others(taken, is_over)
        self.claim(taken, is_over)

    def release(self, locks: Iterable[str]) -> None:
        """Release locks; if the brokers do not answer, the leases expire by themselves."""
        with self._mutex:
            gone = {lock: self._held.pop(lock) for lock in locks if lock in self._held}
            alive = {lock: lease for lock, lease in gone.items() if not lease.is_lost}
            written: dict[bytes, LeaseRecord | None] = {
                key_of(lock, lease.id): self._record(LeaseStep.RELEASE, lock)
                for lock, lease in alive.items()
            }
            # What a lost one has written last stands behind its successor's, and is in the way.
            written |= {
                key_of(lock, lease.id): None for lock, lease in gone.items() if lease.is_lost
            }
            try:
                self._write(written)
            except ChangelogError as error:
                log.warning("a lock is not given back, and ends in %.0f s: %s", self._ttl_s, error)

    def say(self, lock: str, building: Collection[int]) -> None:
        """Record the generations that the holder of a lock builds.

        Raises LeaseLostError: another one has it; UnavailableError: the brokers do not answer.
        """
        with self._mutex:
            self._held[lock].building = tuple(sorted(building))
            self._renew([lock])
            self._raise_if_lost()

    def tenure(self, lock: str) -> Tenure | None:
        """Return the present or last holder of a lock, according to the topic.

        Raises UnavailableError: the brokers do not answer.
        """
        with self.open(), self._mutex:
            self._look()
            return self._tenure(lock)

    def is_mine(self, tenure: Tenure) -> bool:
        """Tell whether a tenure belongs to this process, or to one that shares its local locks."""
        return bool(self._place) and tenure.place == self._place

    def is_wanted(self, locks: Iterable[str]) -> bool:
        """Tell whether somebody waits for one of the locks.

        Raises UnavailableError: the brokers do not answer.
        """
        with self._mutex:
            self._look()
            return any(self._others_waiting(lock) for lock in locks)

    def check(self) -> None:
        """Raise if a lock is known to be lost; asks no broker.

        Raises LeaseLostError: that is so.
        """
        with self._mutex:
            self._raise_if_lost()

    def confirm(self) -> None:
        """Make sure that this process has all that it holds, by the topic's end as it is now.

        Raises LeaseLostError: another process was granted a lock; UnavailableError: the brokers do
        not answer, so nobody knows.
        """
        with self._mutex:
            if not self._held:
                return
            self._look()
            if any(self._is_short(lease) for lease in self._held.values()):
                self._renew()
            self._raise_if_lost()

    def _refused(self, ids: Mapping[str, str]) -> list[str]:
        """Claim locks; return the refused ones, in which case none is held."""
        with self._mutex:
            begun = _now()
            self._write_and_look(
                {
                    key_of(lock, one): self._record(LeaseStep.CLAIM, lock)
                    for lock, one in ids.items()
                }
            )
            granted = {}
            for lock, one in ids.items():
                tenure = self._tenure(lock)
                if tenure is not None and tenure.id == one and not tenure.is_over:
                    granted[lock] = _Held(one, tenure.token, begun + self._ttl_s)
            self._held |= granted
            refused = [lock for lock in ids if lock not in granted]
            if refused:
                self.release(granted)
            else:
                self._clear_up(ids)
            return refused

    def _wait(self, refused: Collection[str], is_over: Callable[[], bool]) -> None:
        """Wait until a refused lock may be free, or it is time to claim it again."""
        again = time.monotonic() + self._ttl_s / 3
        while time.monotonic() < again and not is_over():
            time.sleep(_LOOK_S)
            with self._mutex:
                self._look()
                tenures = [self._tenure(lock) for lock in refused]
            if all(tenure is None or tenure.is_over for tenure in tenures):
                return

    def _let_others(self, locks: Iterable[str], is_over: Callable[[], bool]) -> None:
        """Wait briefly for earlier claims to take their turn; a dead claimant times out."""
        until = time.monotonic() + 10 * _LOOK_S
        while time.monotonic() < until and not is_over() and self._are_free_for_others(locks):
            time.sleep(_LOOK_S / 5)

    def _are_free_for_others(self, locks: Iterable[str]) -> bool:
        with self._mutex:
            self._look()
            for lock in locks:
                tenure = self._tenure(lock)
                if self._others_waiting(lock) and (tenure is None or tenure.is_over):
                    return True
            return False

    def _others_waiting(self, lock: str) -> bool:
        return any(self._waits(lock, one) for one in self._locks.get(lock, Lock()).waiting)

    def _waits(self, lock: str, one: str) -> bool:
        """Tell whether a claim had not expired when the holder wrote last."""
        state = self._locks[lock]
        since = 0 if state.tenure is None else state.tenure.until_ms - round(self._ttl_s * 1000)
        return state.waiting[one] > since

    def _clear_up(self, ids: Mapping[str, str]) -> None:
        """Remove the records of claims that are superseded by later records."""
        gone: dict[bytes, LeaseRecord | None] = {}
        for lock, mine in ids.items():
            wait = {one for one in self._locks[lock].waiting if self._waits(lock, one)}
            claims = self._locks[lock].claims
            gone |= {key_of(lock, one): None for one in claims - {mine} - wait}
        self._write(gone)

    def _renew(self, locks: Collection[str] | None = None) -> None:
        """Renew some leases, or all, and read whether they still hold."""
        if any(lease.until < _now() for lease in self._held.values()):
            # Who stood still reads first: a renewal says how far its writer had read.
            self._look()
        leases = {
            lock: lease
            for lock, lease in self._held.items()
            if not lease.is_lost and (locks is None or lock in locks)
        }
        begun = _now()
        self._write_and_look(
            {
                key_of(lock, one.id): self._record(LeaseStep.RENEW, lock)
                for lock, one in leases.items()
            }
        )
        for lease in leases.values():
            if not lease.is_lost:
                lease.until = begun + self._ttl_s

    def _write_and_look(self, records: Mapping[bytes, LeaseRecord | None]) -> None:
        if records:
            self._look(self._write(records))

    def _look(self, end: int | None = None) -> None:
        """Read new records, up to an offset or the end, and mark leases that are lost."""
        assert self._topic is not None  # noqa: S101 - `open` has it
        for placed in self._topic.read(end):
            self._locks[placed.lock] = self._locks.get(placed.lock, Lock()).then(placed)
        for lock, lease in self._held.items():
            if not lease.is_lost and not self._locks[lock].is_held_by(lease.id, lease.token):
                lease.is_lost = True
                log.info("the lock %s is lost: %s", lock, described(self._tenure(lock)))

    def _write(self, records: Mapping[bytes, LeaseRecord | None]) -> int:
        assert self._topic is not None  # noqa: S101 - `open` has it
        return self._topic.append(records) if records else 0

    def _record(self, step: LeaseStep, lock: str) -> LeaseRecord:
        assert self._topic is not None  # noqa: S101 - `open` has it
        lease, tenure = self._held.get(lock), self._tenure(lock)
        return LeaseRecord(
            step=step,
            seen=self._topic.seen,
            ttl_ms=round(self._ttl_s * 1000),
            owner=Owner.this_process(),
            place=self._place,
            building=lease.building if lease is not None and step is LeaseStep.RENEW else (),
            unremoved=tenure.unremoved if tenure is not None else (),
        )

    def _tenure(self, lock: str) -> Tenure | None:
        return self._locks.get(lock, Lock()).tenure

    def _is_short(self, lease: _Held) -> bool:
        return lease.until - _now() < self._ttl_s / 2

    def _raise_if_lost(self) -> None:
        for lock, lease in self._held.items():
            if lease.is_lost:
                raise LeaseLostError(
                    f"this run lost its lock {lock}: {described(self._tenure(lock))}; it stood "
                    f"still, or did not reach the brokers, for more than {self._ttl_s:g} s",
                    hint="it publishes nothing more; see what the other run does",
                )

    def _keep_alive(self, ended: threading.Event) -> None:
        while not ended.wait(self._ttl_s / 3):
            with self._mutex:
                if ended.is_set() or not self._held:
                    continue
                try:
                    self._renew()
                except ChangelogError as error:
                    log.warning("the locks are not renewed: %s", error)

    def _close(self) -> None:
        with self._mutex:
            self._users -= 1
            if self._users:
                return
            topic, self._topic = self._topic, None
            self._locks.clear()
            self._held.clear()
            self._ended.set()
        if topic is not None:
            topic.__exit__(None, None, None)


def described(tenure: Tenure | None) -> str:
    """Return a lock's holder and its expiry as text for an error."""
    if tenure is None:
        return "its owner is not known"
    until = datetime.fromtimestamp(tenure.until_ms / 1000, UTC).isoformat(timespec="seconds")
    return f"{tenure.owner}; the lock lasts until {until} unless it is renewed"


def place_of(folder: Path) -> str:
    """Return an id of the folder of local locks on this machine, or an empty text if there is none.

    Two processes have the same only if a lock on a file of that folder keeps one from the other:
    they run under the same boot of one kernel, and see the same folder.
    """
    try:
        boot, status = _BOOT.read_text(encoding="ascii").strip(), folder.stat()
    except OSError:
        return ""
    identity = f"{boot} {socket.gethostname()} {status.st_dev} {status.st_ino}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _now() -> float:
    """Return seconds of a clock that also runs while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
