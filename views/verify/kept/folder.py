"""Where states are kept: a folder for each topic, below one of the warehouse, on this machine.

    {warehouse}/_proved/{topic}/manifest.json   what counts; replaced in one step
    {warehouse}/_proved/{topic}/{name}.parquet  rows; written once, and counts when it is named

Files are written first, under new names, then the manifest replaces the previous one. A process
that is killed in between leaves files that no manifest names. Two runs may go on from one state;
the second one to end finds that the manifest has changed since it began, and leaves it.

A reader holds a shared lock (`flock`, which ends with its process). Files that no manifest names
are removed by a process that can get the lock exclusively.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from changelog.contract.log.frontier import Frontier
from changelog.runtime.process.scratch import ScratchFolder
from changelog.runtime.stores import is_here
from views.verify.kept.judgement import Proved
from views.verify.kept.manifest import BrokenError, KeptFile, ProofManifest
from views.verify.kept.stored import StoredTopic, stored_topics
from views.verify.processes.place import stamp_of
from views.verify.processes.pool import in_threads

FOLDER = "_proved"
_MANIFEST, _LOCK, _SWAP = "manifest.json", "lock", "swap.lock"


class KeptTopic:
    """The kept state of one topic; as a context manager it holds the reader's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: IO[bytes] | None = None
        self._last_text: bytes | None = None  # of the manifest, when it was last read

    @property
    def is_there(self) -> bool:
        """Tell whether there is a manifest."""
        return (self._folder / _MANIFEST).exists()

    @property
    def has_files(self) -> bool:
        """Tell whether its folder is there, which a state that was forgotten leaves."""
        return self._folder.exists()

    def manifest(self) -> ProofManifest | None:
        """Return the manifest after checking each file it names, or None if nothing is kept.

        Raises BrokenError: it is not what was written; OSError: it cannot be read.
        """
        self._last_text = self._manifest_text()
        if self._last_text is None:
            return None
        manifest = ProofManifest.from_json(self._last_text)
        for file, digest in zip(
            manifest.files,
            in_threads(self._digest, [file.name for file in manifest.files]),
            strict=True,
        ):
            if digest is None:
                raise BrokenError(f"{file.name} is not there")
            if digest != file.sha256:
                raise BrokenError(f"{file.name} was changed")
        return manifest

    def proved(self) -> Proved | None:
        """Return the description of the kept state, or None without one; looks at no file.

        Raises BrokenError: it is not what was written; OSError: it cannot be read.
        """
        text = self._manifest_text()
        return None if text is None else ProofManifest.from_json(text).proved

    def place(self, name: str) -> Path:
        """Return the path of a file."""
        return self._folder / name

    def new_name(self) -> str:
        """Return a new name for a file."""
        return f"{uuid.uuid4().hex}.parquet"

    def written(self, name: str, rows: int, inexact: Iterable[str]) -> KeptFile:
        """Return the manifest's entry for a file that has been written."""
        digest = self._digest(name)
        assert digest is not None  # noqa: S101 - it has been written
        return KeptFile(name=name, rows=rows, sha256=digest, inexact=tuple(sorted(inexact)))

    def seal(self, manifest: ProofManifest) -> bool:
        """Replace the manifest that was read; return False if another run replaced it first.

        Raises OSError: it cannot be written.
        """
        with (self._folder / _SWAP).open("ab") as swap:
            fcntl.flock(swap, fcntl.LOCK_EX)
            if self._manifest_text() != self._last_text:
                return False
            self._replace(manifest.to_json().encode())
        return True

    def forget(self) -> None:
        """Remove the manifest, so that no state is kept."""
        (self._folder / _MANIFEST).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove the files that no manifest names, unless another process is reading."""
        if not self._is_alone():
            return
        text, named = self._manifest_text(), {_MANIFEST, _LOCK, _SWAP}
        if text is not None:
            with suppress(BrokenError):
                named |= {file.name for file in ProofManifest.from_json(text).files}
        for path in self._folder.iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder, unless another process is reading it."""
        if self._is_alone():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _is_alone(self) -> bool:
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Linux has given up the shared lock to try for the exclusive one. It is taken back
            # without waiting: whoever has it exclusively by now may wait for us elsewhere.
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        return True

    def __enter__(self) -> Self:
        """Create the folder if it is missing, and take the lock of a reader."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / _LOCK).open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._last_text = self._manifest_text()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()

    def _manifest_text(self) -> bytes | None:
        try:
            return (self._folder / _MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def _digest(self, name: str) -> str | None:
        try:
            return stamp_of(self.place(name)).digest
        except FileNotFoundError:
            return None

    def _replace(self, text: bytes) -> None:
        part = self._folder / f"{uuid.uuid4().hex}.part"
        with part.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / _MANIFEST)


def kept_root(warehouse: str) -> Path | None:
    """Return the folder of a warehouse's kept states, or None if it is not on this machine."""
    if not warehouse or not is_here(warehouse):
        return None
    return Path(warehouse.removeprefix("file://")).absolute() / FOLDER


def topic_in(warehouse: str, topic: str, here: Path) -> KeptTopic | StoredTopic:
    """Return the kept state of a topic in a warehouse.

    `here`: a folder of this machine, for copies of what is kept in a store.
    """
    root = kept_root(warehouse)
    return (
        StoredTopic(f"{warehouse}/{FOLDER}/{topic}", here)
        if root is None
        else KeptTopic(root / topic)
    )


def remove_kept(warehouse: str, topics: Iterable[str]) -> None:
    """Remove the kept states of these topics, unless another process reads them on this machine.

    Raises OSError: a folder cannot be read.
    """
    with ScratchFolder("verify") as here:
        for topic in topics:
            place = topic_in(warehouse, topic, Path(here))
            if place.has_files:
                with place:
                    place.remove()


def remove_gone(warehouse: str, frontier: Frontier, here: Path) -> None:
    """Remove the kept states of tables that a slot no longer captures.

    Raises OSError: a folder cannot be read.
    """
    for name in {*_topics(warehouse)} - {*frontier.tables}:
        with suppress(BrokenError, FileNotFoundError):
            place = topic_in(warehouse, name, here)
            proved = place.proved()
            if proved is not None and proved.frontier.slot == frontier.slot:
                with place:
                    place.remove()


def _topics(warehouse: str) -> list[str]:
    """Return the names of the topics of which something is kept."""
    root = kept_root(warehouse)
    if root is None:
        return stored_topics(f"{warehouse}/{FOLDER}")
    return [path.parent.name for path in root.glob(f"*/{_MANIFEST}")]
