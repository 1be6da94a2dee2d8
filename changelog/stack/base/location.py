"""The data directory of a server that runs as another user.

Started by root, PostgreSQL and OpenSearch run as `nobody`, who cannot enter a directory such as
/root/shop/.stack. Their data then lies under /var/lib/changelog-store, and the file `location` in
the server's directory says where.
"""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from contextlib import suppress
from pathlib import Path

from changelog.contract.base.errors import StackError
from changelog.stack.base.places import ROOT_DATA, is_open_to_all, make_directory, server_user
from changelog.stack.base.process import ended, send, stray

_LOCATION = "location"
_OWNER = "owner"
_KILL_SECONDS = 10.0


def data_home(directory: Path) -> Path:
    """Return the directory for the data of the server of `directory`, made if need be.

    It is `directory` itself unless the user of the servers cannot enter that. The answer stays
    the same for the attempt of `directory`.
    """
    make_directory(directory)
    note = directory / _LOCATION
    if note.is_file():
        return make_directory(Path(note.read_text("utf-8").strip()))
    if server_user() is None or is_open_to_all(directory):
        return directory
    if (directory / "data").exists():
        raise StackError(
            f"the user of the servers can no longer enter {directory}",
            hint=f"chmod a+x {directory} and the directories above it",
        )
    _remove_orphans(directory)
    home = make_directory(ROOT_DATA / uuid.uuid4().hex[:16])
    (home / _OWNER).write_text(str(directory), "utf-8")
    note.write_text(str(home), "utf-8")
    return home


def own(path: Path, user: tuple[int, int] | None) -> None:
    """Hand `path` and all that is in it to the user of the servers."""
    if user is not None:
        for inner in (path, *path.rglob("*")):
            os.chown(inner, *user, follow_symlinks=False)


def _remove_orphans(directory: Path) -> None:
    """Remove data of stacks that were deleted, and end what still works on it.

    No `location` points to such data any more. A directory of which even the surroundings are
    gone may be on a disk that is not mounted now: its data is kept. Servers start side by side, and
    stacks too: what is gone already another one has removed, or does.
    """
    for note in ROOT_DATA.glob(f"*/{_OWNER}"):
        with suppress(FileNotFoundError):
            _remove_orphan(note, directory)


def _remove_orphan(note: Path, directory: Path) -> None:
    owner = Path(note.read_text("utf-8"))
    near = owner.parent.is_dir() or owner.parent.parent.is_dir()
    if owner == directory or (near and not owner.is_dir()):
        home = note.parent
        orphans = [*stray([home / "data"], "postgres"), *stray([home / "node"], "java")]
        send(orphans, signal.SIGKILL)
        ended(orphans, _KILL_SECONDS)
        shutil.rmtree(home)
