"""An archive on a disk or in an object store: its manifests and its files."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import BaseError

from changelog.contract.base.errors import LockedError, UnavailableError
from changelog.contract.base.secret import redacted
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.runtime.parquet import table_of
from changelog.runtime.stores import is_here
from replay.archive.manifest import (
    ArchivedErasure,
    ArchivedFile,
    ArchiveError,
    Segment,
    require_chain,
    with_erasures,
)
from replay.spark.files import Files, store_error, uri_of

MANIFESTS, SEGMENTS, ERASURES = "manifests", "segments", "erasures"
_NUMBERED = re.compile(r"\d{8}\.json")  # what else lies there is not of the archive
_OF_RUN = re.compile(r"(\d{8})-")
_AT_ONCE = 16  # manifests that are read at the same time

RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""A record as it is on the log, byte for byte."""
FRONTIERS = pa.schema(
    [("offset", pa.int64()), ("appended_ms", pa.int64()), ("frontier", pa.string())]
)


class Archive:
    """The archive at a place, an absolute path or URI."""

    def __init__(self, place: str) -> None:
        """Open an archive; reads nothing."""
        self.root = uri_of(place)
        self._files = Files()

    def place(self, name: str) -> str:
        """Return the path or URI of a file of the archive."""
        return f"{self.root}/{name}"

    def segments(self) -> list[Segment]:
        """Read all manifests, the oldest first; none where there is no archive yet.

        Raises ArchiveError: one is missing, was altered, or cannot be read.
        """
        read = [
            (name, data, Segment.from_bytes(data, self._shown(f"{MANIFESTS}/{name}")))
            for name, data in self._contents(MANIFESTS)
        ]
        require_chain(read)
        return with_erasures([segment for _, _, segment in read], self.erasures())

    def erasures(self) -> list[ArchivedErasure]:
        """Read what has been erased, the oldest first.

        Raises ArchiveError: an erasure is missing, was altered, or cannot be read.
        """
        erasures, before = [], ""
        for number, (name, data) in enumerate(self._contents(ERASURES), start=1):
            erasure = ArchivedErasure.from_bytes(data, self._shown(f"{ERASURES}/{name}"))
            if (erasure.number, erasure.before) != (number, before):
                raise ArchiveError(f"the erasure {name} does not follow the one before it")
            before = hashlib.sha256(data).hexdigest()
            erasures.append(erasure)
        return erasures

    def _contents(self, folder: str) -> list[tuple[str, bytes]]:
        """Return the names and contents of a folder's files of JSON, in their order."""
        names = [name for name in self._names(folder) if _NUMBERED.fullmatch(name)]
        with ThreadPoolExecutor(_AT_ONCE, folder) as pool:
            contents = list(pool.map(self._read, (f"{folder}/{name}" for name in names)))
        return list(zip(names, contents, strict=True))

    def commit(self, entry: Segment | ArchivedErasure) -> None:
        """Write a manifest, or an erasure, whose files are all there: from then on it counts.

        Raises LockedError: another process has written the one of this number.
        """
        folder = MANIFESTS if isinstance(entry, Segment) else ERASURES
        name = f"{folder}/{entry.number:08d}.json"
        try:
            self._create(name, entry.to_bytes())
        except FileExistsError:
            raise LockedError(
                f"another process archives to {redacted(self.root)}: it has written {name}",
                hint="let one process archive a log; run it again",
            ) from None

    def write(self, name: str, table: pa.Table, place: tuple[int, int, int]) -> ArchivedFile:
        """Write a Parquet file, whole or not at all.

        `place`: partition, first offset, and first offset behind it.
        """
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd", write_statistics=False)
        data = buffer.getvalue()
        self._create(name, data)
        digest = hashlib.sha256(data).hexdigest()
        return ArchivedFile(name, *place, table.num_rows, len(data), digest)

    def table(self, file: ArchivedFile) -> pa.Table:
        """Read a file and check that it is the one that was written.

        Raises ArchiveError: it is missing or was altered; names it.
        """
        return checked_table(self._read(file.name), file, self._shown(file.name))

    def frontiers(self, segment: Segment) -> list[FrontierRecord]:
        """Return the frontiers since the segment before, the segment's own at the end.

        Raises ArchiveError: the file is missing or was altered.
        """
        rows = self.table(segment.frontiers).to_pylist()
        return [
            FrontierRecord(Frontier.from_json(row["frontier"]), row["offset"], row["appended_ms"])
            for row in rows
        ]

    def remove_unnamed(self, segments: Sequence[Segment]) -> list[str]:
        """Remove the files of killed runs; returns the names of their folders.

        A folder whose number has a manifest that does not name it can never count. One of the next
        number may be in writing.
        """
        named = {segment.frontiers.name.split("/")[1] for segment in segments}
        gone = [
            name
            for name in self._names(SEGMENTS)
            if name not in named and (own := _OF_RUN.match(name)) and int(own[1]) <= len(segments)
        ]
        for name in gone:
            self._files.remove(self.place(f"{SEGMENTS}/{name}"))
        return gone

    def remove_superseded(self) -> list[str]:
        """Remove rewritten files, and the unnamed files of killed erasures.

        Returns the names of the removed files.
        """
        named = {file.name for segment in self.segments() for file in segment.files}
        gone = []
        for folder in {name.rpartition("/")[0] for name in named}:
            try:
                names = [f"{folder}/{name}" for name in self._files.names(self.place(folder))]
                names = [name for name in names if name.endswith(".parquet")]
                for name in sorted({*names} - named):
                    self._files.remove_file(self.place(name))
                    gone.append(name)
            except (BaseError, OSError) as error:
                raise self._failed("written", error) from error
        return gone

    def _names(self, folder: str) -> list[str]:
        try:
            return self._files.names(self.place(folder))
        except OSError as error:
            raise self._failed("read", error) from error

    def _create(self, name: str, data: bytes) -> None:
        try:
            self._files.create(self.place(name), data, makes_folder=True)
        except FileExistsError:
            raise
        except (BaseError, OSError) as error:
            raise self._failed("written", error) from error

    def _read(self, name: str) -> bytes:
        try:
            return self._files.read(self.place(name))
        except FileNotFoundError as error:
            raise ArchiveError(f"the archive has lost {self._shown(name)}") from error
        except (BaseError, OSError) as error:
            raise self._failed("read", error) from error

    def _shown(self, name: str) -> str:
        return redacted(self.place(name))

    def _failed(self, done: str, error: Exception) -> UnavailableError:
        named = f"the archive {redacted(self.root)}"
        if is_here(self.root):
            line = (str(error).splitlines() or [type(error).__name__])[0]
            return UnavailableError(
                f"{named} cannot be {done}: {redacted(line)}",
                hint="`archive` of [rebuild] in changelog.toml says where it is",
            )
        hint = "the environment says where it is and who asks, as for a warehouse"
        refusal = store_error(error, named, done, hint)
        # Of one kind, whoever is refused: `--every` goes on, for rights and buckets come back.
        return UnavailableError(str(refusal.args[0]), hint=refusal.hint)


def checked_table(data: bytes, file: ArchivedFile, shown: str) -> pa.Table:
    """Return the rows of a file's bytes.

    Raises ArchiveError: they are not the bytes that were written.
    """
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise ArchiveError(f"the file {shown} was altered: its digest is another")
    return table_of(data)


@dataclass(frozen=True, slots=True)
class Checked:
    """The counts of an archive whose every byte was checked."""

    segments: int
    files: int
    records: int
    size: int  # in bytes


def check(archive: Archive) -> Iterator[tuple[str, Checked]]:
    """Read every file and compare it with its manifest; yields the counts after each segment.

    Raises ArchiveError: a file or manifest is missing, was altered, or has other records.
    """
    files = records = size = 0
    for number, segment in enumerate(archive.segments(), start=1):
        for file in segment.files:
            table = archive.table(file)
            if table.num_rows != file.records or not _is_in_place(table, file):
                raise ArchiveError(f"the file {file.name} has other records than its manifest says")
            files, records, size = files + 1, records + table.num_rows, size + file.size
        yield str(segment.frontier.lsn), Checked(number, files, records, size)


def _is_in_place(table: pa.Table, file: ArchivedFile) -> bool:
    offsets = table["offset"].to_numpy()
    if (
        "partition" in table.column_names
        and (table["partition"].to_numpy() != file.partition).any()
    ):
        return False
    is_in_range = (offsets >= file.start).all() and (offsets < file.end).all()
    return bool(is_in_range and (offsets[1:] > offsets[:-1]).all())
