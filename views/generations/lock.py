"""One rebuild of a view at a time, and a lock that says who holds it.

The lock is the operating system's (`flock`): it ends with its process however that dies, so a
dead owner's lock is free without anybody judging whether a process id is still the same process.
Beside it lies a file that names the owner; it is for people and decides nothing. A view has its
own lock, so rebuilds of different views run side by side; a run takes the locks of all its views
before it starts and in the order of their names, so two runs cannot wait for each other.

The lock lies in the project's folder and holds on one machine. Two machines that rebuild the same
view into the same warehouse need a scheduler between them.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from changelog.contract.base.errors import ChangelogError, LockedError
from changelog.contract.base.secret import redacted

FOLDER = Path(".changelog") / "locks"


@contextmanager
def locked(root: Path, views: Iterable[str]) -> Iterator[None]:
    """Hold the locks of `views` in the project at `root`.

    Raises:
        LockedError: another process holds one; names the view and the owner.
        ChangelogError: the project's folder cannot be written.
    """
    folder = root / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChangelogError(
            f"cannot make the folder of the locks, {folder}: {error.strerror}",
            hint="a rebuild writes in its project's folder",
        ) from error
    with ExitStack() as held:
        for view in sorted(set(views)):
            held.enter_context(_one(folder, view))
        yield


@contextmanager
def _one(folder: Path, view: str) -> Iterator[None]:
    owner = folder / f"{view}.json"
    lock = FileLock(folder / f"{view}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LockedError(
            f'another rebuild of view "{view}" runs: {_described(owner)}',
            hint="wait for it, or end that process; a dead one holds no lock",
        ) from None
    except OSError as error:
        raise ChangelogError(f"cannot lock {owner.stem}: {error.strerror}") from error
    try:
        _write_owner(owner)
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


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
