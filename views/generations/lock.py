"""Locks of a view: for one rebuild, one follower at the same time, and whoever moves its readers.

The locks are the operating system's (`flock`): they end with their process however that dies, so a
dead owner's lock is free without anybody judging whether a process id is still the same process.
Beside each lies a file that names the owner; it is for people and decides nothing. A view has its
own locks, so runs of different views go side by side; a run takes the locks of all its views
in the order of their names, so two runs cannot wait for each other.

    NAME.lock          whoever builds a generation of the view, while it does
    NAME.follow.lock   whoever follows the view, as long as it does
    NAME.round.lock    whoever moves its readers, or clears up: a follower in each round, a rebuild
                       when it begins and when it publishes; from its planning to its end one that
                       cannot catch up with a follower

These locks lie in the project's folder and hold on one machine. Behind each stands a lease of the
same meaning that holds across machines (`views.leases`), unless the settings go without. A local
lock comes first: a process of this machine that died left its lease behind, and who has its file's
lock may take that at once. A follower keeps the lease of its rounds between them, until somebody
waits for it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from changelog.contract.base.errors import ChangelogError, LockedError, UnavailableError
from views.generations import reservation
from views.generations.place import FOLDER, LockPlace, folder_of
from views.generations.reservation import Others, is_held, reserving
from views.leases.leases import Leases
from views.leases.record import Owner

log = logging.getLogger("changelog.views")

BUILD, FOLLOW, ROUND, CHECKPOINTS = "build", "follow", "round", "checkpoints"
ERASE = "erase"
_LOOK_S = 0.5
_PROBED_S = 0.5
"""A follower that looks who builds holds that lock for an instant."""


@dataclass(frozen=True, slots=True)
class LockPatience:
    """A limit on the wait for a view's lock."""

    until: float  # a moment of the monotonic clock; the locks of a run share it
    stop: Callable[[], bool] = lambda: False  # tells whether somebody asked to end

    @classmethod
    def of(cls, seconds: float, stop: Callable[[], bool]) -> LockPatience:
        """Return a limit of some seconds from now."""
        return cls(time.monotonic() + seconds, stop)

    def is_over(self) -> bool:
        """Tell whether the wait has to end."""
        return self.stop() or time.monotonic() >= self.until


_NONE = LockPatience(0.0)


@contextmanager
def locked(
    place: LockPlace, views: Iterable[str], patience: LockPatience = _NONE
) -> Iterator[None]:
    """Work alone on `views` of a project: nobody builds or follows them.

    Raises:
        LockedError: another process does; names the view and the owner.
        ChangelogError: the project's folder cannot be written, or the brokers do not answer.
    """
    names = list(views)
    with building(place, names, patience), following(place, names, patience):
        yield


@contextmanager
def building(
    place: LockPlace, views: Iterable[str], patience: LockPatience = _NONE
) -> Iterator[None]:
    """Hold the locks for building generations of `views`; a follower may run at the same time.

    Raises:
        LockedError: another process builds one; names the view and the owner.
        ChangelogError: the project's folder cannot be written, or the brokers do not answer.
    """
    taken = {view: f'another rebuild of view "{view}" runs' for view in sorted(set(views))}
    with _lock_all(place, BUILD, taken, patience):
        yield


@contextmanager
def following(
    place: LockPlace, views: Iterable[str], patience: LockPatience = _NONE
) -> Iterator[None]:
    """Hold the locks for following `views`; a rebuild may run at the same time.

    Raises:
        LockedError: another process follows one; names the view and the owner.
        ChangelogError: the project's folder cannot be written, or the brokers do not answer.
    """
    taken = {view: f'view "{view}" is followed' for view in sorted(set(views))}
    with _lock_all(place, FOLLOW, taken, patience):
        yield


@contextmanager
def erasing(place: LockPlace) -> Iterator[None]:
    """Hold the lock for erasing keys; views are built and followed meanwhile.

    Raises:
        LockedError: another process erases; names the owner.
        ChangelogError: the project's folder cannot be written, or the brokers do not answer.
    """
    with _lock_all(place, ERASE, {"": "keys are being erased"}, _NONE):
        yield


@contextmanager
def _lock_all(
    place: LockPlace, kind: str, taken: Mapping[str, str], patience: LockPatience
) -> Iterator[None]:
    folder = folder_of(place.root)
    with ExitStack() as stack:
        for view, reason in taken.items():
            own = "" if kind == BUILD else f".{kind}"
            stack.enter_context(_one(folder, view, own, reason, patience))
            if kind == BUILD:
                stack.enter_context(reserving(folder, view))
        stack.enter_context(_leased(place, kind, taken, patience))
        yield


@contextmanager
def _leased(
    place: LockPlace, kind: str, taken: Mapping[str, str], patience: LockPatience
) -> Iterator[None]:
    if place.leases is None or not taken:
        yield
        return
    named = {place.lock(view, kind): reason for view, reason in taken.items()}
    with place.leases.holding(named, patience.is_over):
        yield


class Moving:
    """Moves readers of some views, or clears up; a context manager that may be entered again.

    Who waits comes before who has just been there: a follower whose rounds follow at once would
    keep a rebuild waiting for ever.
    """

    def __init__(
        self,
        place: LockPlace,
        views: Iterable[str],
        stop: Callable[[], bool],
        *,
        keeps: bool = False,
    ) -> None:
        """Store the views whose readers will be moved; takes no lock yet.

        `keeps`: whether the lease is kept between two times until somebody waits for it: for who
        holds other leases all the while.
        """
        self._place, self._views, self._stop = place, sorted(set(views)), stop
        self._keeps = keeps
        self._depth = 0
        self._held = ExitStack()
        self._meanwhile: frozenset[str] = frozenset()

    @property
    def place(self) -> LockPlace:
        """Return the place of the locks."""
        return self._place

    def __enter__(self) -> Self:
        """Wait until no other process moves the views.

        Raises LockedError: somebody asked to end meanwhile, or a lock that this process had is
        lost; ChangelogError: the project's folder cannot be written, or the brokers do not answer.
        """
        if self._depth == 0:
            with ExitStack() as stack:
                self._take(stack, [view for view in self._views if view not in self._meanwhile])
                self._held = stack.pop_all()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Release the locks."""
        self._depth -= 1
        if self._depth == 0:
            self._held.close()

    @contextmanager
    def holding(self, views: Iterable[str]) -> Iterator[None]:
        """Keep some of the views between the times in which all are moved.

        Raises LockedError: somebody asked to end meanwhile; ChangelogError: the project's folder
        cannot be written, or the brokers do not answer.
        """
        assert self._depth == 0  # noqa: S101 - else they are held already
        with ExitStack() as stack:
            kept = sorted(set(views) & set(self._views))
            self._take(stack, kept)
            self._meanwhile = frozenset(kept)
            try:
                yield
            finally:
                self._meanwhile = frozenset()

    def _take(self, stack: ExitStack, views: Sequence[str]) -> None:
        """Wait until no other process moves some views; hold none while waiting for another.

        Else who keeps some of them could wait for one who waits for these.
        """
        order = list(views)
        while True:
            with ExitStack() as taken:
                busy = self._busy(taken, order)
                if busy is None:
                    stack.enter_context(taken.pop_all())
                    break
            order.sort(key=lambda view: view != busy)
        leases, names = self._place.leases, self._leases(views)
        if leases is None or not names:
            return
        stack.enter_context(leases.open())
        if self._keeps:
            leases.hold_on(names, self._stop)
        else:
            leases.claim(names, self._stop)
        stack.callback(self._give_back, names)
        leases.check()

    def _give_back(self, names: Mapping[str, str]) -> None:
        leases = self._place.leases
        if leases is None:
            return
        if not self._keeps or self._is_wanted_elsewhere(leases):
            leases.release(names)

    def _is_wanted_elsewhere(self, leases: Leases) -> bool:
        try:
            return leases.is_wanted(self._leases(self._views))
        except UnavailableError as error:
            log.debug("whether somebody waits is not known", exc_info=error)
            return False

    def _leases(self, views: Iterable[str]) -> dict[str, str]:
        return {
            self._place.lock(view, ROUND): f'somebody else moves readers of view "{view}"'
            for view in views
        }

    def is_wanted(self) -> bool:
        """Return whether another process is waiting for a lock held here."""
        if self._place.leases is not None and self._is_wanted_elsewhere(self._place.leases):
            return True
        folder = folder_of(self._place.root)
        return any(is_held(folder / f"{view}.next.lock") for view in self._views)

    def _busy(self, taken: ExitStack, views: Sequence[str]) -> str | None:
        """Take the locks of views, waiting for the first alone; return a view that is taken."""
        folder = folder_of(self._place.root)
        for view in views:
            waits = view == views[0]
            try:
                with self._waited(folder / f"{view}.next.lock", view, waits=waits):
                    own = self._waited(folder / f"{view}.round.lock", view, waits=waits)
                    taken.enter_context(own)
            except Timeout:
                return view
        return None

    @contextmanager
    def _waited(self, path: Path, view: str, *, waits: bool) -> Iterator[None]:
        lock = FileLock(path)
        while True:
            try:
                lock.acquire(timeout=_LOOK_S)
                break
            except Timeout:
                if self._stop():
                    raise LockedError(
                        f'somebody else moves readers of view "{view}"',
                        hint="it was asked to end, and waits no longer",
                    ) from None
                if not waits:
                    raise
            except OSError as error:
                raise ChangelogError(f"cannot lock {path.stem}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()


def others_of(place: LockPlace, view: str, *, builds: bool) -> Others:
    """Return the generations that other processes have built; see `views.generations.reservation`.

    Of a builder on another machine its lease tells. As long as that was not given back, and nobody
    has taken over, what it names is spared.
    """
    local = reservation.others(folder_of(place.root), view, builds=builds)
    if place.leases is None:
        return local
    tenure = place.leases.tenure(place.lock(view, BUILD))
    if tenure is None:
        return local
    is_elsewhere = not (builds or tenure.is_over or place.leases.is_mine(tenure))
    spared = frozenset(tenure.building if is_elsewhere else ())
    return replace(local, spared=local.spared | spared, dead=local.dead | {*tenure.unremoved})


def is_attended(place: LockPlace, view: str, now_ms: int) -> bool:
    """Tell whether somebody follows or builds a view, by its locks; takes none.

    A process of another machine that died counts until its lease ends, by our clock (`now_ms`).
    """
    folder = place.root / FOLDER
    for kind, own in ((FOLLOW, ".follow"), (BUILD, "")):
        path = folder / f"{view}{own}.lock"
        # Who may not open another user's lock goes by the lease alone.
        if os.access(path, os.W_OK) and is_held(path):
            return True
        if place.leases is None:
            continue
        tenure = place.leases.tenure(place.lock(view, kind))
        if tenure is None or tenure.is_over or place.leases.is_mine(tenure):
            continue
        if tenure.until_ms >= now_ms:
            return True
    return False


def reserve(place: LockPlace, view: str, generations: Collection[int]) -> None:
    """Record the generations that the lock's holder builds; see `views.generations.reservation`.

    Raises LockedError: another one has the lock by now.
    """
    reservation.reserve(folder_of(place.root), view, generations)
    if place.leases is not None:
        place.leases.say(place.lock(view, BUILD), generations)


@contextmanager
def advancing(place: LockPlace, stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock of checkpoints, from planning on: a second process would plan in vain.

    `stop`: tells whether somebody asked to end, and nobody waits any longer.

    Raises LockedError: it was asked to end while another process had the lock; ChangelogError: the
    project's folder cannot be written, or the brokers do not answer.
    """
    with ExitStack() as stack:
        taken = "another process brings checkpoints forward"
        folder, patience = folder_of(place.root).parent, LockPatience(math.inf, stop)
        stack.enter_context(_one(folder, CHECKPOINTS, "", taken, patience))
        if place.leases is not None:
            stack.enter_context(place.leases.holding({place.lock("", CHECKPOINTS): taken}, stop))
        yield


@contextmanager
def _one(folder: Path, view: str, kind: str, taken: str, patience: LockPatience) -> Iterator[None]:
    owner = folder / f"{view}{kind}.json"
    lock = FileLock(folder / f"{view}{kind}.lock")
    try:
        _acquire(lock, owner, taken, patience)
    except OSError as error:
        raise ChangelogError(f"cannot lock {owner.stem}: {error.strerror}") from error
    try:
        _write_owner(owner)
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def _acquire(lock: FileLock, owner: Path, taken: str, patience: LockPatience) -> None:
    is_told = False
    while True:
        try:
            lock.acquire(timeout=_PROBED_S)
        except Timeout:
            if patience.is_over():
                raise LockedError(
                    f"{taken}: {_described(owner)}",
                    hint="wait for it (--wait SECONDS), or end that process; a dead one holds no "
                    "lock",
                ) from None
        else:
            return
        if not is_told:
            log.info("waits for a lock: %s: %s", taken, _described(owner))
            is_told = True


def _write_owner(path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(Owner.this_process().to_json()), encoding="utf-8")
    part.replace(path)


def _described(path: Path) -> str:
    try:
        return str(Owner.from_json(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError):
        return "its owner is not known yet"  # it has the lock and is about to write its name
