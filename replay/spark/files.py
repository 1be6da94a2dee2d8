"""File operations on a warehouse, on a disk or in a store, with deltalake's credentials.

obstore and deltalake use the same library, so options and environment mean the same to both.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from pyarrow import fs

from changelog.contract.base.errors import ChangelogError, ConfigurationError, UnavailableError
from changelog.contract.base.secret import redacted
from changelog.runtime.stores import STORES, Store, arrow_system, files_in, store_of
from changelog.stack.base.places import is_read_by_all
from replay.spark.object_store import MARKING, NOBODY, SETTINGS, remove_markers

log = logging.getLogger("changelog.replay")
_NO_BUCKET = "404 Not Found"  # of a list, which no missing file makes fail
_REFUSED = ("401 Unauthorized", "403 Forbidden")
_CAUSE = re.compile(r"\n\s*\x1b\[31m↳\x1b\[0m ")  # before each cause in deltalake's messages


def uri_of(warehouse: str) -> str:
    """Return a warehouse's URI without a closing slash; of a local folder the absolute path."""
    if "://" in warehouse:
        return warehouse.rstrip("/")
    return str(Path(warehouse.removeprefix("file:")).expanduser().resolve())


def can_copy(place: str) -> bool:
    """Tell whether `Files.copy` works at a place: on a disk, and on the storages of clouds."""
    return store_of(place) != "hdfs"


class Files:
    """Files and folders by URI or absolute path."""

    def names(self, folder: str) -> list[str]:
        """List the names in a folder; none when it is not there."""
        system, path = arrow_system(folder)
        entries = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        # Spark's client for Azure marks a folder by an object of its name, beside what is in it.
        return sorted({entry.base_name for entry in entries})

    def exists(self, place: str) -> bool:
        """Tell whether a file or folder is there."""
        folder, _, name = place.rpartition("/")
        return name in self.names(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files below a folder, by their names relative to it, and their bytes."""
        system, path = arrow_system(folder)
        below = fs.FileSelector(path, allow_not_found=True, recursive=True)
        files = [entry for entry in system.get_file_info(below) if entry.type is fs.FileType.File]
        return {entry.path.removeprefix(f"{path}/"): entry.size for entry in files}

    def footer(self, place: str) -> pq.FileMetaData:
        """Return the metadata in the footer of a Parquet file."""
        system, path = arrow_system(place)
        return pq.read_metadata(path, filesystem=system)

    def remove(self, folder: str) -> None:
        """Remove a folder and all in it, if it is there."""
        if self.exists(folder):
            system, path = arrow_system(folder)
            system.delete_dir(path)
            self._remove_marks(folder)

    def _remove_marks(self, folder: str) -> None:
        """Remove the mark by which Hadoop's client keeps an empty folder in a store."""
        kind = store_of(folder)
        if kind == "abfs" and self.exists(folder):
            self.remove_file(folder)  # an object of the folder's name
        elif kind in MARKING and self.exists(folder):
            remove_markers(folder, os.environ)

    def read(self, place: str) -> bytes:
        """Return the content of a file."""
        folder, _, name = place.rpartition("/")
        return files_in(folder).read(name)

    def create(self, place: str, data: bytes, *, makes_folder: bool = False) -> None:
        """Create a file, whole or not at all; raises FileExistsError if it is there.

        `makes_folder`: whether its folder may be missing.
        """
        folder, _, name = place.rpartition("/")
        files_in(folder, mkdir=makes_folder).create(name, data)

    def replace(self, place: str, data: bytes) -> None:
        """Write a file, whole or not at all, in the place of one of that name if there is one."""
        folder, _, name = place.rpartition("/")
        files_in(folder, mkdir=True).replace(name, data)

    def remove_file(self, place: str) -> None:
        """Remove a file that is there."""
        folder, _, name = place.rpartition("/")
        files_in(folder).remove(name)

    def copy(self, folder: str, source: str, target: str) -> None:
        """Copy a file at the storage, without reading it; on a disk both names share the bytes.

        `source` and `target`: names relative to the folder.
        """
        files_in(folder).copy(source, target)


@contextmanager
def marked(warehouse: str) -> Iterator[Path]:
    """Create a warehouse's folder if it is missing; yields a file in it, removed at the end."""
    folder = Path(uri_of(warehouse))
    path = folder / f"_seen-{uuid.uuid4().hex}"
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
        if is_new and is_read_by_all(folder):
            log.warning(
                "every user of this machine may read the warehouse %s: views, checkpoints, history "
                "| hint: chmod 700 %s, unless another user serves from it or runs Spark",
                folder, folder,
            )  # fmt: skip
    except OSError as error:
        raise ConfigurationError(
            f"the warehouse {folder} cannot be written: {error.strerror}",
            hint="give it to this user, or choose another under [rebuild] in changelog.toml",
        ) from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def check_writable(warehouse: str) -> None:
    """Check that a warehouse, a folder here or in a store, can be written.

    Raises ConfigurationError: it cannot; UnavailableError: the store does not answer.
    """
    kind = store_of(warehouse)
    if kind is not None:
        SETTINGS[kind](uri_of(warehouse), os.environ)  # says what is wrong with the environment
        _check_store(uri_of(warehouse), STORES[kind])
    elif "://" not in warehouse:
        with marked(warehouse):
            pass


def _check_store(warehouse: str, store: Store) -> None:
    files, place = Files(), f"{warehouse}/_seen-{uuid.uuid4().hex}"
    hint = f"the environment says where it is and who asks: {store.names}"
    try:
        files.create(place, b"")
        files.remove_file(place)
    except (BaseError, OSError) as error:
        raise store_error(error, f"the warehouse {warehouse}", "written", hint) from error


def store_error(error: Exception, named: str, done: str, hint: str) -> ChangelogError:
    """Return an error of a store, or of a disk, as ours.

    `named`: the place, such as `the warehouse s3://lake`. `done`: what it cannot be, such as
    `written`. `hint`: how to say where it is.
    """
    text, why = str(error), _why(error)
    if isinstance(error, FileNotFoundError) or _NO_BUCKET in text:
        return ConfigurationError(
            f"{named} cannot be {done}: there is no such bucket",
            hint=f"make it, or choose another place under [rebuild] in changelog.toml; {hint}",
        )
    refusals = (PermissionDeniedError, UnauthenticatedError, PermissionError)
    if isinstance(error, refusals) or any(sign in text for sign in _REFUSED):
        return ConfigurationError(f"{named} cannot be {done}: {why}", hint=hint)
    if any(sign in text for sign in NOBODY):
        return ConfigurationError(f"nobody says who asks for {named}: {why}", hint=hint)
    return UnavailableError(f"the store of {named} does not answer: {why}", hint=hint)


def _why(error: Exception) -> str:
    """Return a store's error code, or its message without the request."""
    text = str(error)
    if code := re.search(r"<Code>(\w+)</Code>", text):
        return redacted(code[1])
    plain = _CAUSE.sub(": ", text.partition("\n\nDebug source")[0]).strip()
    return redacted(plain.partition("\n")[0].rpartition(" - ")[2])
