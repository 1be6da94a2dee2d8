"""Directories that all stacks of a user share, and their access rights.

PostgreSQL and OpenSearch refuse to run as root. Started by root they run as `nobody`, so what they
read must be in directories that everybody may enter.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import platformdirs

from changelog.contract.base.errors import StackError

CACHE_VARIABLE = "CHANGELOG_CACHE"
ROOT_CACHE = Path("/var/cache/changelog-store")
ROOT_DATA = Path("/var/lib/changelog-store")
_UNPRIVILEGED_USER = "nobody"


def is_root() -> bool:
    """Say whether this process may, and therefore must, hand servers to another user."""
    return os.geteuid() == 0


def server_user() -> tuple[int, int] | None:
    """Return uid and gid for servers that refuse root, or None when they run as the caller."""
    if not is_root():
        return None
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED_USER)
    except KeyError:
        raise StackError(
            f'PostgreSQL does not run as root and there is no user "{_UNPRIVILEGED_USER}"',
            hint="run as an ordinary user",
        ) from None
    return entry.pw_uid, entry.pw_gid


def cache_dir() -> Path:
    """Return the directory of downloads, made if need be; `CHANGELOG_CACHE` overrides it.

    Raises StackError: it cannot be made, or is everybody's.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        place = Path(chosen).expanduser().absolute()
    elif is_root():
        place = ROOT_CACHE
    else:
        place = Path(platformdirs.user_cache_dir("changelog-store"))
    directory = make_directory(place)
    if directory.stat().st_mode & stat.S_IWOTH:
        raise StackError(
            f"every user of this machine may write to the cache {directory}, "
            "from which programs run",
            hint=f"chmod o-w {directory}, or choose another with {CACHE_VARIABLE}",
        )
    return directory


def shared_cache_dir() -> Path:
    """Return a cache that the user of the servers can read: usually `cache_dir()` itself."""
    cache = cache_dir()
    if not is_root() or is_open_to_all(cache):
        return cache
    return make_directory(ROOT_CACHE)


def make_directory(path: Path) -> Path:
    """Make `path`; as root readable by all, whatever the umask."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(
            f"cannot make the directory {path}: {error.strerror}",
            hint=f"choose another cache with {CACHE_VARIABLE}, or another --dir",
        ) from error
    if is_root():
        for folder in missing:
            folder.chmod(0o755)
    return path


def is_read_by_all(folder: Path) -> bool:
    """Say whether any user may list a folder and read files in it that do not forbid it."""
    return is_open_to_all(folder) and bool(folder.stat().st_mode & stat.S_IROTH)


def is_open_to_all(path: Path) -> bool:
    """Return whether any user may enter `path` and read its files."""
    ways = (path.resolve(), *path.resolve().parents)
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in ways)
