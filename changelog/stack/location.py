"""Where the data of a server lies that runs as another user.

Started by root, PostgreSQL and OpenSearch run as `nobody`, who cannot enter a directory such as
/root/shop/.stack. Their data then lies under /var/lib/changelog-store, and the file `location` in
the server's directory says where.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from changelog.contract.errors import StackError
from changelog.stack.places import ROOT_DATA, is_open_to_all, make_directory, server_user

_LOCATION = "location"
_OWNER = "owner"


def data_home(directory: Path) -> Path:
    """Return the directory for the data of the server of `directory`, made if need be.

    It is `directory` itself unless the user of the servers cannot enter that. The answer stays
    the same for the life of `directory`.
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
        for each in (path, *path.rglob("*")):
            os.chown(each, *user, follow_symlinks=False)


def _remove_orphans(directory: Path) -> None:
    """Remove data of a stack that was deleted: no `location` points there any more."""
    for owner in ROOT_DATA.glob(f"*/{_OWNER}"):
        if owner.read_text("utf-8") == str(directory):
            shutil.rmtree(owner.parent)
