"""Records of a topic in buckets of keys: in memory up to a limit, then in a file for each bucket.

All records of a key are in one bucket, so that each is folded by itself.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

KEPT_BYTES = 160 << 20


class Buckets:
    """Tables of records; several threads may put some."""

    def __init__(self, count: int, folder: Path | None, *, most_bytes: int = KEPT_BYTES) -> None:
        """Begin without a record.

        Args:
            count: of the buckets.
            folder: where files are made, None for the system's place.
            most_bytes: how much is kept in memory.
        """
        self._kept: list[list[pa.Table]] = [[] for _ in range(count)]
        self._locks = [threading.Lock() for _ in range(count)]
        self._most_bytes, self._kept_bytes, self._lock = most_bytes, 0, threading.Lock()
        self._parent = folder
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._kept)

    def put(self, bucket: int, table: pa.Table) -> None:
        """Add records to a bucket."""
        size = table.nbytes
        with self._lock:
            fits = self._kept_bytes + size <= self._most_bytes
            self._kept_bytes += size if fits else 0
            if not fits and self._folder is None:
                self._folder = tempfile.TemporaryDirectory(
                    prefix="changelog-verify-", dir=self._parent, ignore_cleanup_errors=True
                )
        if fits:
            self._kept[bucket].append(table)
            return
        with (
            self._locks[bucket],
            pa.OSFile(str(self._path(bucket)), "ab") as file,
            pa.ipc.new_stream(file, table.schema) as stream,
        ):
            stream.write_table(table)

    def tables(self, bucket: int) -> Iterator[pa.Table]:
        """Return the records of a bucket, some at a time."""
        yield from self._kept[bucket]
        if self._folder is None or not self._path(bucket).exists():
            return
        with pa.OSFile(str(self._path(bucket))) as file:
            while file.tell() < file.size():
                with pa.ipc.open_stream(file) as stream:
                    yield stream.read_all()

    def forget(self, bucket: int) -> None:
        """Drop a bucket's records."""
        self._kept[bucket] = []
        if self._folder is not None:
            self._path(bucket).unlink(missing_ok=True)

    def close(self) -> None:
        """Drop all records and remove the folder."""
        self._kept = [[] for _ in self._kept]
        if self._folder is not None:
            self._folder.cleanup()

    def _path(self, bucket: int) -> Path:
        assert self._folder is not None  # noqa: S101 - made before the first file
        return Path(self._folder.name) / f"{bucket}.arrow"
