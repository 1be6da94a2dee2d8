"""The stores that hold warehouses and archives, by the schemes of their URIs, and files in them.

Nothing is asked of a user but a URI: where a store is and who asks comes from the environment, by
the names that the store's own programs read. deltalake and obstore read them by themselves, as does
hdfs-native. Spark's settings follow from the same names (`replay.spark.object_store`); the jars are
in `changelog.stack.download.artifacts`.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.installed.extras import check_extra

if TYPE_CHECKING:
    from hdfs_native import Client
    from obstore.store import ObjectStore
    from pyarrow import fs

_CHUNK_BYTES = 4 << 20
_SPLIT = frozenset("%?#\\")
_REFUSED = re.compile(r"Permission denied: [^\\\n]+")
_HDFS_LIMITS = {"dfs.client.failover.max.attempts": "4"}
"""A namenode that is away is asked for 15 seconds; by the client's own limit for some minutes."""


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of store."""

    form: str  # of a place in it
    prefixes: tuple[str, ...]  # of the names in the environment that say where it is and who asks
    names: str  # the most usual of these names


STORES: Mapping[str, Store] = MappingProxyType(
    {
        "s3": Store(
            "s3://BUCKET/FOLDER",
            ("AWS_",),
            "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        ),
        "gs": Store(
            "gs://BUCKET/FOLDER",
            ("GOOGLE_",),
            "GOOGLE_APPLICATION_CREDENTIALS, the path of a file",
        ),
        "abfs": Store(
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
            ("AZURE_", "AZURITE_"),
            "AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CLIENT_ID and its like",
        ),
        "hdfs": Store(
            "hdfs://NAMENODE:8020/FOLDER", ("HADOOP_",), "HADOOP_CONF_DIR, HADOOP_USER_NAME"
        ),
    }
)
_SCHEMES = {
    **{scheme: scheme for scheme in STORES},
    "s3a": "s3",
    "abfss": "abfs",
}


def store_of(place: str | None) -> str | None:
    """Return the kind of the store that a place is in; None for a folder of this machine.

    Raises ConfigurationError: there is no such kind, or the URI names no bucket.

    >>> store_of("s3a://lake/views"), store_of("/srv/views")
    ('s3', None)
    """
    if place is None or is_here(place):
        return None
    parts = urlsplit(place)
    kind = _SCHEMES.get(parts.scheme)
    if kind is None or not parts.netloc or ("@" in parts.netloc) != (kind == "abfs"):
        forms = ", ".join(store.form for store in STORES.values())
        why = "names no bucket" if kind and not parts.netloc else "is in no store that we know"
        raise ConfigurationError(
            f'the place "{redacted(place)}" {why}', hint=f"write a folder, or {forms}"
        )
    return kind


def check_place(place: str) -> None:
    """Refuse a URI of the settings that is in no store, or that programs read in different ways.

    Spark takes `a%20b` as it stands, and deltalake for `a b`; behind `?` and `#` one sees no path;
    an empty part and dots are refused by one and dropped by the next. In HDFS deltalake does not
    find again what it writes below a name with a space, or with letters beyond ASCII.

    Raises ConfigurationError: it is such a URI.
    """
    kind = store_of(place)
    path = place.partition("://")[2].partition("/")[2].rstrip("/")
    if kind is None or not path:
        return
    is_split = bool(_SPLIT & {*path} or {*path.split("/")} & {"", ".", ".."})
    if is_split or (kind == "hdfs" and (" " in path or not path.isascii())):
        raise ConfigurationError(
            f'programs read the place "{redacted(place)}" in different ways',
            hint="its path goes without %, ?, #, \\, empty parts, . and .., in HDFS also without "
            "spaces and letters beyond ASCII",
        )


def is_here(place: str) -> bool:
    """Tell whether a place is a folder or file of this machine."""
    return "://" not in place or place.startswith("file://")


def of_deltalake(place: str) -> str:
    """Return the URI of a place as all programs but Spark write it."""
    return place.replace("s3a://", "s3://", 1)


def environ_of(place: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that says where a place's store is, and who asks."""
    kind = store_of(place)
    prefixes = STORES[kind].prefixes if kind else ()
    return {name: text for name, text in environ.items() if name.startswith(prefixes)}


class FolderFiles(Protocol):
    """The files below a folder, by their names relative to it.

    Each call raises OSError or obstore's BaseError where the store refuses it.
    """

    def names(self) -> list[str]:
        """List all files below the folder."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError if there is none."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in parts."""

    def create(self, name: str, data: bytes) -> None:
        """Create a file, whole or not at all; raises FileExistsError if it is there."""

    def replace(self, name: str, data: bytes | Path) -> None:
        """Write a file, whole or not at all, in the place of one of that name if there is one."""

    def remove(self, name: str) -> None:
        """Remove a file that is there."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file at the store, without reading it."""


def files_in(folder: str, *, mkdir: bool = False) -> FolderFiles:
    """Return the files of a folder, by its absolute path or URI.

    `mkdir`: whether a folder of this machine may be missing.
    """
    if store_of(folder) == "hdfs":
        return _HdfsFiles(folder)
    return _Objects(folder, mkdir=mkdir)


class _Objects:
    """Files on a disk or in an object store."""

    def __init__(self, folder: str, *, mkdir: bool) -> None:
        self._folder, self._mkdir = folder, mkdir

    @cached_property
    def _store(self) -> ObjectStore:
        from obstore.store import LocalStore, from_url  # noqa: PLC0415 - of an extra

        if is_here(self._folder):
            return LocalStore(self._folder.removeprefix("file://"), mkdir=self._mkdir)
        return from_url(of_deltalake(self._folder))

    def names(self) -> list[str]:
        path = Path(self._folder.removeprefix("file://"))
        if is_here(self._folder) and not self._mkdir and not path.exists():
            return []
        return [file["path"] for batch in self._store.list() for file in batch]

    def read(self, name: str) -> bytes:
        return bytes(self._store.get(name).bytes())

    def chunks(self, name: str) -> Iterator[bytes]:
        yield from map(bytes, self._store.get(name).stream(_CHUNK_BYTES))

    def create(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - of an extra

        try:
            self._store.put(name, data, mode="create")
        except AlreadyExistsError as error:
            raise FileExistsError(name) from error

    def replace(self, name: str, data: bytes | Path) -> None:
        self._store.put(name, data)

    def remove(self, name: str) -> None:
        self._store.delete(name)

    def copy(self, source: str, target: str) -> None:
        self._store.copy(source, target)


class _HdfsFiles:
    """Files in HDFS, whose namenode refuses a rename onto a file that is there.

    A file is written under a hidden name first. A killed run leaves it; nobody reads it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @cached_property
    def _root(self) -> str:
        return urlsplit(self._folder).path.rstrip("/")

    @cached_property
    def _client(self) -> Client:
        check_extra("hdfs", "a place in HDFS")
        from hdfs_native import Client  # noqa: PLC0415 - an extra

        return Client(f"hdfs://{urlsplit(self._folder).netloc}", _HDFS_LIMITS)

    def names(self) -> list[str]:
        with _hdfs_errors():
            try:
                entries = list(self._client.list_status(self._root, True))
            except FileNotFoundError:
                return []
        paths = [entry.path for entry in entries if not entry.isdir]
        names = [path.removeprefix(f"{self._root}/") for path in paths]
        return [name for name in names if not name.rpartition("/")[2].startswith(".")]

    def read(self, name: str) -> bytes:
        with _hdfs_errors(), self._client.read(f"{self._root}/{name}") as file:
            return bytes(file.read())

    def chunks(self, name: str) -> Iterator[bytes]:
        with _hdfs_errors(), self._client.read(f"{self._root}/{name}") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield bytes(chunk)

    def create(self, name: str, data: bytes) -> None:
        self._put(name, data, overwrite=False)

    def replace(self, name: str, data: bytes | Path) -> None:
        self._put(name, data, overwrite=True)

    def remove(self, name: str) -> None:
        with _hdfs_errors():
            if not self._client.delete(f"{self._root}/{name}"):
                raise FileNotFoundError(name)

    def copy(self, source: str, target: str) -> None:
        self.create(target, self.read(source))

    def _put(self, name: str, data: bytes | Path, *, overwrite: bool) -> None:
        folder, _, base = f"{self._root}/{name}".rpartition("/")
        draft = f"{folder}/.{base}-{uuid.uuid4().hex}"
        with _hdfs_errors():
            try:
                source = data.open("rb") if isinstance(data, Path) else BytesIO(data)
                with source, self._client.create(draft) as target:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)
                self._client.rename(draft, f"{folder}/{base}", overwrite)
            except BaseException:
                with suppress(Exception):
                    self._client.delete(draft)
                raise


@contextmanager
def _hdfs_errors() -> Iterator[None]:
    """Turn other errors of hdfs-native into an OSError."""
    try:
        yield
    except RuntimeError as error:
        if refused := _REFUSED.search(str(error)):
            raise PermissionError(f"HDFS: {refused[0]}") from error
        raise OSError(f"HDFS: {error}") from error


def arrow_system(place: str) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system for a place, and the place's path in it."""
    from pyarrow import fs  # noqa: PLC0415 - of an extra

    if is_here(place):
        return fs.LocalFileSystem(), place.removeprefix("file://")
    if store_of(place) == "hdfs":
        check_extra("hdfs", "a place in HDFS")
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415 - an extra

        parts = urlsplit(place)
        system = HdfsFileSystem(parts.hostname, parts.port, **_HDFS_LIMITS)
        return fs.PyFileSystem(fs.FSSpecHandler(system)), parts.path
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - of an extra

    root, _, name = of_deltalake(place).rpartition("/")
    return fs.PyFileSystem(DeltaStorageHandler(root)), name
