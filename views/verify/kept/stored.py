"""Where states are kept in a store: a folder for each topic, below one of the warehouse.

    {warehouse}/_proved/{topic}/{number}.json             the newest counts; written once
    {warehouse}/_proved/{topic}/{number}-{name}.parquet   rows, for a manifest of that number

A manifest is written only where there is none of its number, so of two runs that go on from one
state one wins. An empty one says that nothing is kept. Files are copied to this machine, and
compared with their digests, before they are used: nobody is kept from removing them meanwhile.
Whoever finds one missing reads the log from its start.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from changelog.runtime.stores import FolderFiles, files_in
from views.verify.kept.judgement import Proved
from views.verify.kept.manifest import BrokenError, KeptFile, ProofManifest
from views.verify.processes.place import fetched, stamp_of
from views.verify.processes.pool import in_threads

_MANIFEST = re.compile(r"([0-9]{8})\.json")
_ROWS = re.compile(r"([0-9]{8})-[0-9a-f]+\.parquet")
_ATTEMPTS = 10


class StoredTopic:
    """The kept state of one topic in a store; as a context manager it has files of it here."""

    def __init__(self, uri: str, here: Path) -> None:
        """Store the URI of its folder, and a folder of this machine for copies; reads nothing."""
        self._uri, self._here = uri, here / uuid.uuid4().hex
        self._number = 0  # of the newest manifest when it was last looked for

    @property
    def is_there(self) -> bool:
        """Tell whether a state is kept."""
        return bool(self._newest())

    @property
    def has_files(self) -> bool:
        """Tell whether its folder has files, which a state that was forgotten leaves."""
        return bool(self._names())

    def manifest(self) -> ProofManifest | None:
        """Return the manifest and copy each file that it names, or None if nothing is kept.

        Raises BrokenError: it is not what was written; OSError: it cannot be read.
        """
        text = self._newest()
        if not text:
            return None
        manifest = ProofManifest.from_json(text)
        for _ in in_threads(self._fetch, manifest.files):
            pass
        return manifest

    def proved(self) -> Proved | None:
        """Return the description of the kept state, or None without one; copies no file.

        Raises BrokenError: it is not what was written; OSError: it cannot be read.
        """
        text = self._newest()
        return ProofManifest.from_json(text).proved if text else None

    def place(self, name: str) -> Path:
        """Return the path of a file on this machine."""
        return self._here / name

    def new_name(self) -> str:
        """Return a new name for a file."""
        return f"{self._number + 1:08d}-{uuid.uuid4().hex}.parquet"

    def written(self, name: str, rows: int, inexact: Iterable[str]) -> KeptFile:
        """Copy a file that has been written to the store; return the manifest's entry.

        Raises OSError: it cannot be copied.
        """
        digest = stamp_of(self.place(name)).digest
        with _refusals():
            self._files.replace(name, self.place(name))
        return KeptFile(name=name, rows=rows, sha256=digest, inexact=tuple(sorted(inexact)))

    def seal(self, manifest: ProofManifest) -> bool:
        """Write the manifest after the one that was read; return False if another run was first.

        Raises OSError: it cannot be written.
        """
        return self._create(manifest.to_json().encode())

    def forget(self) -> None:
        """Write that nothing is kept.

        Raises OSError: it cannot be written.
        """
        for _ in range(_ATTEMPTS):
            if not self._newest() or self._create(b""):
                return
        raise OSError("other processes keep states of it all the time")

    def sweep(self) -> None:
        """Remove older manifests, and files up to the newest one that it does not name.

        Files of the next number may be in writing.
        """
        try:
            manifest = ProofManifest.from_json(text) if (text := self._newest()) else None
        except BrokenError:  # the next proof says so
            return
        named = {_name_of(self._number)}
        named |= {file.name for file in manifest.files} if manifest else set()
        for name in self._names():
            match = _MANIFEST.fullmatch(name) or _ROWS.fullmatch(name)
            is_older = match is not None and int(match[1]) <= self._number
            if is_older and name not in named:
                self._remove(name)

    def remove(self) -> None:
        """Remove all that is kept; raises OSError."""
        for name in self._names():
            self._remove(name)

    def __enter__(self) -> Self:
        """Make the folder of copies, and look for the newest manifest."""
        self._here.mkdir(parents=True)
        self._newest()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the copies."""
        shutil.rmtree(self._here, ignore_errors=True)

    @property
    def _files(self) -> FolderFiles:
        return files_in(self._uri, mkdir=True)

    def _names(self) -> list[str]:
        with _refusals():
            return self._files.names()

    def _newest(self) -> bytes:
        """Return the newest manifest; empty where nothing is kept."""
        numbers = [int(match[1]) for name in self._names() if (match := _MANIFEST.fullmatch(name))]
        self._number = max(numbers, default=0)
        if not self._number:
            return b""
        with _refusals():
            try:
                return self._files.read(_name_of(self._number))
            except FileNotFoundError:  # somebody has removed it since
                return b""

    def _create(self, text: bytes) -> bool:
        with _refusals():
            try:
                self._files.create(_name_of(self._number + 1), text)
            except FileExistsError:
                return False
        return True

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError), _refusals():
            self._files.remove(name)

    def _fetch(self, file: KeptFile) -> None:
        place = self.place(file.name)
        with _refusals():
            try:
                stamp = fetched(self._files, file.name, place)
            except FileNotFoundError:
                raise BrokenError(f"{file.name} is not there") from None
        if stamp.digest != file.sha256:
            raise BrokenError(f"{file.name} was changed")


def stored_topics(uri: str) -> list[str]:
    """Return the names of the topics of which something is kept; raises OSError."""
    with _refusals():
        return sorted({name.partition("/")[0] for name in files_in(uri, mkdir=True).names()})


def _name_of(number: int) -> str:
    return f"{number:08d}.json"


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn a store's own errors into an OSError."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - of another extra

    try:
        yield
    except BaseError as error:
        raise OSError(str(error).partition("\n")[0]) from error
