"""Who works on a view: one rebuild, one follower beside it, and one of both that moves readers.

The locks are the operating system's (`flock`): they end with their process however that dies, so a
dead owner's lock is free without anybody judging whether a process id is still the same process.
Beside each lies a file that names the owner; it is for people and decides nothing. A view has its
own locks, so runs of different views go side by side; a run takes the locks of all its views
in the order of their names, so two runs cannot wait for each other.

    NAME.lock          whoever builds a generation of the view, while it does
    NAME.follow.lock   whoever follows the view, as long as it does
    NAME.round.lock    whoever moves its readers, or clears up: a follower in each round, a rebuild
                       when it begins and when it publishes

The locks lie in the project's folder and hold on one machine. Two machines that rebuild the same
view into the same warehouse need a scheduler between them.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from changelog.contract.base.errors import ChangelogError, LockedError
from changelog.contract.base.secret import redacted
from views.generations import reservation
from views.generations.reservation import Others, reserving

log = logging.getLogger("changelog.views")

FOLDER = Path(".changelog") / "locks"
_LOOK_S = 0.5
_PROBED_S = 0.5
"""A follower that looks who builds holds that lock for an instant."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a lock of a view, and what ends the wait.

    Attributes:
        until: a moment of the monotonic clock; the locks of a run share it.
        stop: tells whether somebody asked to end.
    """

    until: float
    stop: Callable[[], bool] = lambda: False

    @classmethod
    def of(cls, seconds: float, stop: Callable[[], bool]) -> Patience:
        """Return the patience that ends in so many seconds."""
        return cls(time.monotonic() + seconds, stop)

    def is_over(self) -> bool:
        """Tell whether to wait no longer."""
        return self.stop() or time.monotonic() >= self.until


_NONE = Patience(0.0)


@contextmanager
def locked(root: Path, views: Iterable[str], patience: Patience = _NONE) -> Iterator[None]:
    """Work alone on `views` in the project at `root`: nobody builds or follows them.

    Raises:
        LockedError: another process does; names the view and the owner.
        ChangelogError: the project's folder cannot be written.
    """
    names = list(views)
    with building(root, names, patience), following(root, names, patience):
        yield


@contextmanager
def building(root: Path, views: Iterable[str], patience: Patience = _NONE) -> Iterator[None]:
    """Build generations of `views`, maybe beside somebody who follows them.

    Raises:
        LockedError: another process builds one; names the view and the owner.
        ChangelogError: the project's folder cannot be written.
    """
    folder = folder_of(root)
    with ExitStack() as held:
        for view in sorted(set(views)):
            taken = f'another rebuild of view "{view}" runs'
            held.enter_context(_one(folder, view, "", taken, patience))
            held.enter_context(reserving(folder, view))
        yield


@contextmanager
def following(root: Path, views: Iterable[str], patience: Patience = _NONE) -> Iterator[None]:
    """Follow `views`, maybe beside somebody who rebuilds them.

    Raises:
        LockedError: another process follows one; names the view and the owner.
        ChangelogError: the project's folder cannot be written.
    """
    folder = folder_of(root)
    with ExitStack() as held:
        for view in sorted(set(views)):
            taken = f'view "{view}" is followed'
            held.enter_context(_one(folder, view, ".follow", taken, patience))
        yield


class Moving:
    """Moves readers of some views, or clears up; a context manager that may be entered again.

    Who waits comes before who has just been there: a follower whose rounds follow at once would
    keep a rebuild waiting for ever.
    """

    def __init__(self, root: Path, views: Iterable[str], stop: Callable[[], bool]) -> None:
        """Take what is moved.

        Args:
            root: the project's folder.
            views: their names.
            stop: tells whether to wait no longer.
        """
        self._root, self._views, self._stop = root, sorted(set(views)), stop
        self._depth = 0
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Wait until nobody else moves them.

        Raises:
            LockedError: somebody asked to end meanwhile.
            ChangelogError: the project's folder cannot be written.
        """
        if self._depth == 0:
            folder = folder_of(self._root)
            with ExitStack() as held:
                for view in self._views:
                    with self._waited(folder / f"{view}.next.lock", view):
                        held.enter_context(self._waited(folder / f"{view}.round.lock", view))
                self._held = held.pop_all()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Let others."""
        self._depth -= 1
        if self._depth == 0:
            self._held.close()

    def is_wanted(self) -> bool:
        """Tell whether somebody waits for what is held here."""
        folder = folder_of(self._root)
        for view in self._views:
            lock = FileLock(folder / f"{view}.next.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return True
            lock.release()
        return False

    @contextmanager
    def _waited(self, path: Path, view: str) -> Iterator[None]:
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
            except OSError as error:
                raise ChangelogError(f"cannot lock {path.stem}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.release()


def others_of(root: Path, view: str, *, builds: bool) -> Others:
    """Return what others have built of a view; see `views.generations.reservation.others`."""
    return reservation.others(folder_of(root), view, builds=builds)


def reserve(root: Path, view: str, generations: Collection[int]) -> None:
    """Say what the holder of a view's lock builds; see `views.generations.reservation.reserve`."""
    reservation.reserve(folder_of(root), view, generations)


@contextmanager
def advancing(root: Path) -> Iterator[None]:
    """Bring checkpoints forward, from planning it on: who comes second would have planned in vain.

    Raises:
        ChangelogError: the project's folder cannot be written.
    """
    with FileLock(folder_of(root).parent / "checkpoints.lock"):
        yield


def folder_of(root: Path) -> Path:
    """Return where the locks of a project lie, made if need be.

    Raises:
        ChangelogError: it cannot be made.
    """
    folder = root / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChangelogError(
            f"cannot make the folder of the locks, {folder}: {error.strerror}",
            hint="a rebuild writes in its project's folder",
        ) from error
    return folder


@contextmanager
def _one(folder: Path, view: str, kind: str, taken: str, patience: Patience) -> Iterator[None]:
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


def _acquire(lock: FileLock, owner: Path, taken: str, patience: Patience) -> None:
    told = False
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
        if not told:
            log.info("waits for a lock: %s: %s", taken, _described(owner))
            told = True


def _write_owner(path: Path) -> None:
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": redacted(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])),
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps(owner), encoding="utf-8")
    part.replace(path)


def _described(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return (
            f"process {owner['pid']} on {owner['host']} since {owner['started']}, "
            f"`{owner['command']}`"
        )
    except (OSError, ValueError, KeyError):
        return "its owner is not known yet"  # it has the lock and is about to write its name
