"""A folder that several machines share: files are put there and fetched, each with its digest.

It is a local path, or a URI of a store, with credentials from the environment.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from obstore.exceptions import BaseError

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.stores import FolderFiles, files_in


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size of a file in bytes and its SHA-256."""

    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A shared folder, by its absolute path or URI."""

    uri: str

    def put(self, name: str, file: Path) -> None:
        """Copy a file there, whole or not at all.

        Raises SinkError: it cannot be written.
        """
        try:
            files_in(self.uri, mkdir=True).replace(name, file)
        except (BaseError, OSError, ValueError) as error:
            raise self._refused("written", error) from error

    def fetch(self, name: str, file: Path) -> FileStamp:
        """Copy a file from the store; return the stamp of the copy.

        Raises SinkError: it is not there, or cannot be read.
        """
        try:
            return fetched(files_in(self.uri, mkdir=True), name, file)
        except (BaseError, OSError, ValueError) as error:
            raise self._refused(f"read: {name}", error) from error

    def names(self) -> list[str]:
        """List the files that are there.

        Raises SinkError: the folder cannot be read.
        """
        try:
            return files_in(self.uri, mkdir=True).names()
        except (BaseError, OSError, ValueError) as error:
            raise self._refused("read", error) from error

    def _refused(self, how: str, error: Exception) -> SinkError:
        first = redacted(str(error).strip().partition("\n")[0])
        return SinkError(
            f"the folder {self.uri}, which the tasks of a verification share, cannot be {how}: "
            f"{first}",
            hint="every worker must reach the warehouse; `--verify-on driver` needs no tasks",
        )


def fetched(files: FolderFiles, name: str, file: Path) -> FileStamp:
    """Copy a file of a folder to this machine; return the stamp of the copy."""
    digest, size = hashlib.sha256(), 0
    with file.open("wb") as out:
        for chunk in files.chunks(name):
            digest.update(chunk)
            size += out.write(chunk)
    return FileStamp(size, digest.hexdigest())


def stamp_of(file: Path) -> FileStamp:
    """Return the stamp of a file of this machine."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
    return FileStamp(file.stat().st_size, digest.hexdigest())
