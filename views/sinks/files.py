"""The few file operations on a warehouse: where deltalake publishes, with its credentials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from replay.warehouse import of_deltalake


def uri_of(warehouse: str) -> str:
    """Give a warehouse without a closing slash, a local folder as its absolute path."""
    if "://" in warehouse:
        return warehouse.rstrip("/")
    return str(Path(warehouse.removeprefix("file:")).expanduser().resolve())


class Files:
    """Files and folders by URI or absolute path."""

    def __init__(self, storage_options: Mapping[str, str] | None = None) -> None:
        """Take what deltalake needs to reach a warehouse that is no folder of this machine."""
        self._storage_options = storage_options

    def names(self, folder: str) -> list[str]:
        """List the names in a folder; none when it is not there."""
        system, path = self._of(folder)
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def exists(self, place: str) -> bool:
        """Tell whether a file or folder is there."""
        folder, _, name = place.rpartition("/")
        return name in self.names(folder)

    def remove(self, folder: str) -> None:
        """Remove a folder and all in it; none there is no error."""
        if self.exists(folder):
            system, path = self._of(folder)
            system.delete_dir(path)

    def _of(self, place: str) -> tuple[fs.FileSystem, str]:
        if _is_here(place):
            return fs.LocalFileSystem(), place.removeprefix("file://")
        uri = of_deltalake(place)
        root, _, name = uri.rpartition("/")
        handler = DeltaStorageHandler(root, dict(self._storage_options or {}) or None)
        return fs.PyFileSystem(handler), name


def _is_here(place: str) -> bool:
    return "://" not in place or place.startswith("file://")
