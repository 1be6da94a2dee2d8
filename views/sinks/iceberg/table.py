"""Reads and commits the Iceberg table of one view, by its catalogue.

A generation is a snapshot without a parent, with files of its own, under a tag. What readers open
is the branch `main`: to publish is one commit that moves it to a generation's snapshot, with the
schema of that. Until the first one the table has a name that no reader opens; it is then renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs
from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Record, TableVersion

from changelog.contract.base.errors import ChangelogError, SinkError
from changelog.contract.base.secret import redacted
from replay.base.clock import clock_ms
from views.base.iceberg import IcebergPlace
from views.sinks.base import ForeignTableError, UnavailableSinkError
from views.sinks.iceberg.write import FileAccess, WrittenFile
from views.sinks.retrying import retrying

_VIEW = "changelog.view"
_PUBLISHED = "changelog.published"
_OPEN = "changelog.open."
_TAG = "generation-"
_VERSION: TableVersion = 2
_UNPARTITIONED = 0
"""The specification that our tables are made with; others may have added one."""
_ROWS = "total-records"
_PROPERTIES = {
    "format-version": str(_VERSION),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_AWAY = (
    ServiceUnavailableError,
    ServerError,
    TooManyRequestsError,
    CommitStateUnknownException,
)
_AWAY_NAMES = frozenset({"ConnectionError", "Timeout", "OperationalError"})
"""Errors of the catalogues' clients, requests and SQLAlchemy, which only some catalogues need."""

Changes = tuple[Sequence[TableUpdate], Sequence[TableRequirement]]
"""The updates of a commit, and what must be true for it."""
_UPDATE: TypeAdapter[TableUpdate] = TypeAdapter(TableUpdate)
_REQUIREMENT: TypeAdapter[TableRequirement] = TypeAdapter(TableRequirement)


@dataclass(frozen=True, slots=True)
class ViewTable:
    """The table of a view as it was when it was loaded."""

    table: Table
    is_served: bool  # whether it has the name that readers open

    @property
    def metadata(self) -> TableMetadata:
        """Return its metadata."""
        return self.table.metadata

    @property
    def root(self) -> str:
        """Return the folder of all generations; of no other table, whatever its location."""
        return f"{self.table.location().rstrip('/')}/{self.metadata.table_uuid}"

    @property
    def access(self) -> FileAccess:
        """Return the access to its files."""
        return FileAccess(self.table.location(), dict(self.table.io.properties))

    def folder(self, generation: int) -> str:
        """Return the folder of a generation's files."""
        return f"{self.root}/{generation:06d}"

    @property
    def published(self) -> int | None:
        """Return the generation that readers see."""
        number = self.table.properties.get(_PUBLISHED)
        return int(number) if number is not None and self.is_served else None

    @property
    def generations(self) -> list[int]:
        """List the generations, finished or not, in order."""
        tags = [int(name.removeprefix(_TAG)) for name in self.metadata.refs if _is_ours(name)]
        opened = [
            int(name.removeprefix(_OPEN))
            for name in self.table.properties
            if name.startswith(_OPEN)
        ]
        return sorted({*tags, *opened})

    @property
    def main(self) -> int | None:
        """Return the snapshot that the branch `main` is at."""
        ref = self.metadata.refs.get(MAIN_BRANCH)
        return ref.snapshot_id if ref else None

    def sealed(self, generation: int) -> Snapshot | None:
        """Return the snapshot of a sealed generation; None if it is missing or not sealed."""
        ref = self.metadata.refs.get(_tag(generation))
        return self.metadata.snapshot_by_id(ref.snapshot_id) if ref else None

    def paths(self, snapshot: Snapshot) -> set[str]:
        """Return the data files of a snapshot."""
        files = self.table.io
        return {
            entry.data_file.file_path
            for manifest in snapshot.manifests(files)
            for entry in manifest.fetch_manifest_entry(files)
        }

    def other_readers(self, generation: int) -> list[str]:
        """List the branches and tags of others that have files of a generation."""
        refs = self.metadata.refs
        ours = {ref.snapshot_id for name, ref in refs.items() if _is_ours(name)}
        folder = f"{self.folder(generation)}/"
        own = self.sealed(generation)
        others = [
            (name, self.metadata.snapshot_by_id(ref.snapshot_id))
            for name, ref in refs.items()
            if not _is_ours(name)
            and (ref.snapshot_id not in ours or (own and ref.snapshot_id == own.snapshot_id))
            and not (name == MAIN_BRANCH and not self.is_served)
        ]
        return [
            name
            for name, snapshot in others
            if snapshot and any(path.startswith(folder) for path in self.paths(snapshot))
        ]

    def missing(self, generation: int, snapshot: Snapshot) -> set[str]:
        """Return the data files of a generation that are not there any more."""
        files, folder = _files(self.table), self.folder(generation)
        present = set(_names(files, folder))
        return {path for path in self.paths(snapshot) if path.rpartition("/")[2] not in present}


class ViewTables:
    """Access to the table of one view."""

    def __init__(self, place: IcebergPlace, view: str, retry_seconds: float) -> None:
        self._place, self._view = place, view
        self._retry_seconds = retry_seconds

    def load(self) -> ViewTable | None:
        """Load the table; None if there is none.

        Raises ForeignTableError: it was made by others; SinkError: it cannot be read.
        """
        if not self._place.is_made:
            return None
        with self.errors(), self._place.opened() as catalogue:
            return self._found(catalogue)

    def create(self, schema: Schema) -> None:
        """Create the table under the name that no reader opens.

        Raises SinkError: its namespace is missing, or the catalogue refuses it.
        """
        place = self._place
        namespace, _, name = place.table.rpartition(".")
        with self.errors():
            place.make()
        with self.errors(), place.opened() as catalogue:
            location = None
            if not place.catalogue:
                catalogue.create_namespace_if_not_exists(namespace)
                location = f"{place.folder}/{namespace.replace('.', '/')}/{name}"
            properties = {**_PROPERTIES, _VIEW: self._view}
            catalogue.create_table(place.unpublished, schema, location, properties=properties)

    def commit(self, change: Callable[[ViewTable], Changes]) -> None:
        """Commit a change, which is computed again if others have committed meanwhile.

        Raises SinkError: the table is gone, or the catalogue refuses it.
        """

        def once() -> None:
            with self._place.opened() as catalogue:
                loaded = self._found(catalogue)
                if loaded is None:
                    raise SinkError(f"{self._place} is gone", hint="rebuild the view")
                updates, requirements = change(loaded)
                same = requirement("table-uuid", uuid=loaded.metadata.table_uuid)
                catalogue.commit_table(loaded.table, (same, *requirements), tuple(updates))

        with self.errors():
            retrying(CommitFailedException, self._retry_seconds, 0.1, 2.0)(once)

    def expose(self) -> None:
        """Give the table the name that readers open.

        Raises SinkError: the name is taken, or the catalogue cannot rename.
        """
        with self.errors(), self._place.opened() as catalogue:
            catalogue.rename_table(self._place.unpublished, self._place.table)

    def drop(self) -> None:
        """Remove the table: its name, then the files, then all that the catalogue has of it."""
        place = self._place
        if not place.is_made:
            return
        with self.errors(), place.opened() as catalogue:
            loaded = self._found(catalogue)
            if loaded is None:
                return
            if loaded.is_served:
                catalogue.rename_table(place.table, place.unpublished)
            table, files = loaded.table, _files(loaded.table)
            _remove(files, loaded.root)
            catalogue.drop_table(place.unpublished)
            if not place.catalogue:
                _remove(files, table.location())
                return
            logged = [entry.metadata_file for entry in table.metadata.metadata_log]
            for path in (*logged, table.metadata_location):
                table.io.delete(path)

    def remove(self, loaded: ViewTable, generation: int) -> None:
        """Remove a generation's files."""
        with self.errors():
            _remove(_files(loaded.table), loaded.folder(generation))

    def _found(self, catalogue: Catalog) -> ViewTable | None:
        loaded = self._place.load(catalogue)
        if loaded is None:
            return None
        table, is_served = loaded
        if table.properties.get(_VIEW) != self._view:
            raise ForeignTableError(
                f'{self._place} is a table that was not made for the view "{self._view}"',
                hint=f"move it away, or name another table in views/{self._view}.iceberg.json",
            )
        return ViewTable(table, is_served)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of pyiceberg, its catalogue and its storage into a SinkError."""
        try:
            yield
        except ChangelogError:
            raise
        except Exception as error:
            text = " ".join(redacted(str(error)).split())[:500] or type(error).__name__
            names = {kind.__name__ for kind in type(error).__mro__}
            if isinstance(error, _AWAY) or names & _AWAY_NAMES:
                raise UnavailableSinkError(
                    f"the catalogue of {self._place} does not answer: {text}",
                    hint="see that it runs, then run it again",
                ) from error
            hint = "see what the catalogue and its storage say of it"
            if isinstance(error, NoSuchNamespaceError):
                hint = "create the namespace; this program makes none in a catalogue of yours"
            elif isinstance(error, UnauthorizedError | ForbiddenError | PermissionError):
                hint = "the user needs to create, alter, rename and drop tables of the namespace"
            raise SinkError(f"{self._place}: {text}", hint=hint) from error


def update(action: str, **parts: Any) -> TableUpdate:  # noqa: ANN401 - as the REST protocol has it
    """Return an update of a table, by the names of Iceberg's REST protocol."""
    return _UPDATE.validate_python({"action": action, **_dashed(parts)})


def requirement(kind: str, **parts: Any) -> TableRequirement:  # noqa: ANN401 - likewise
    """Return a condition of a commit, by the names of Iceberg's REST protocol."""
    return _REQUIREMENT.validate_python({"type": f"assert-{kind}", **_dashed(parts)})


def _dashed(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): part for name, part in parts.items()}


def opening(generation: int) -> TableUpdate:
    """Return the update that notes an unfinished generation."""
    return update("set-properties", updates={f"{_OPEN}{generation:06d}": "unfinished"})


def sealing(
    loaded: ViewTable, generation: int, schema: Schema, files: Sequence[WrittenFile]
) -> Changes:
    """Write the manifests of a generation; return the change that tags it.

    Raises SinkError: it is not an unfinished one any more.
    """
    if f"{_OPEN}{generation:06d}" not in loaded.table.properties:
        raise removed_meanwhile(generation)
    table, metadata, folder = loaded.table, loaded.metadata, loaded.folder(generation)
    number, sequence = metadata.new_snapshot_id(), metadata.next_sequence_number()
    manifests = []
    if files:
        output = table.io.new_output(f"{folder}/{number}-manifest.avro")
        with write_manifest(
            _VERSION, metadata.specs()[_UNPARTITIONED], schema, output, number, "deflate"
        ) as manifest:
            for file in files:
                manifest.add(_entry(number, file))
        manifests = [manifest.to_manifest_file()]
    manifest_list = f"{folder}/{number}-manifests.avro"
    with write_manifest_list(
        _VERSION, table.io.new_output(manifest_list), number, None, sequence, "deflate"
    ) as writer:
        writer.add_manifests(manifests)
    sizes = {
        "added-data-files": len(files),
        "added-records": sum(file.rows for file in files),
        "added-files-size": sum(file.size for file in files),
        "total-data-files": len(files),
        "total-delete-files": 0,
        _ROWS: sum(file.rows for file in files),
        "total-files-size": sum(file.size for file in files),
    }
    snapshot = {
        "snapshot-id": number,
        "sequence-number": sequence,
        "timestamp-ms": clock_ms(),
        "manifest-list": manifest_list,
        "summary": {"operation": "append", **{name: str(size) for name, size in sizes.items()}},
        "schema-id": schema.schema_id,
    }
    tag = _tag(generation)
    updates = [
        update("add-snapshot", snapshot=snapshot),
        update("set-snapshot-ref", ref_name=tag, type="tag", snapshot_id=number),
        update("remove-properties", removals=[f"{_OPEN}{generation:06d}"]),
    ]
    return updates, []


def removed_meanwhile(generation: int) -> SinkError:
    """Return the error for a generation that is not there any more while it is written."""
    return SinkError(
        f"generation {generation} was removed or sealed by another process while it was written",
        hint="rebuild the view",
    )


def publishing(loaded: ViewTable, generation: int, snapshot: Snapshot) -> Changes:
    """Return the change that moves readers to a generation."""
    number = snapshot.snapshot_id
    updates = [
        update("set-current-schema", schema_id=snapshot.schema_id),
        update("set-snapshot-ref", ref_name=MAIN_BRANCH, type="branch", snapshot_id=number),
        update("set-properties", updates={_PUBLISHED: str(generation)}),
    ]
    return updates, [_main_at(loaded.main)]


def discarding(loaded: ViewTable, generation: int) -> Changes:
    """Return the change after which a generation is an unfinished one.

    Where the table is not served yet, `main` may be at it: a publication that was killed.
    """
    snapshot = loaded.sealed(generation)
    if snapshot is None:
        return [opening(generation)], []
    number = snapshot.snapshot_id
    names = [_tag(generation)]
    if not loaded.is_served and loaded.main == number:
        names.append(MAIN_BRANCH)
    updates = [
        opening(generation),
        *(update("remove-snapshot-ref", ref_name=name) for name in names),
        update("remove-snapshots", snapshot_ids=[number]),
    ]
    return updates, [_main_at(loaded.main)]


def _main_at(snapshot: int | None) -> TableRequirement:
    return requirement("ref-snapshot-id", ref=MAIN_BRANCH, snapshot_id=snapshot)


def forgetting(loaded: ViewTable, generation: int) -> Changes:
    """Return the change after which the table knows nothing of a generation."""
    name = f"{_OPEN}{generation:06d}"
    if name not in loaded.table.properties:
        return [], []
    return [update("remove-properties", removals=[name])], []


def rows_in(snapshot: Snapshot) -> int:
    """Return the number of rows of a sealed generation."""
    assert snapshot.summary is not None  # noqa: S101 - `sealing` wrote it
    return int(snapshot.summary[_ROWS] or 0)


def _tag(generation: int) -> str:
    return f"{_TAG}{generation:06d}"


def _is_ours(name: str) -> bool:
    return name.startswith(_TAG) and name.removeprefix(_TAG).isdecimal()


def _entry(snapshot: int, file: WrittenFile) -> ManifestEntry:
    # Counts and bounds of columns are left out: moments of our columns may be outside of those
    # that pyiceberg's Python has.
    data_file = DataFile.from_args(
        _table_format_version=_VERSION,
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.size,
    )
    data_file.spec_id = _UNPARTITIONED
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot,
        sequence_number=None,
        file_sequence_number=None,
        data_file=data_file,
    )


def _files(table: Table) -> PyArrowFileIO:
    """Return access that lists folders, which pyiceberg's own does not."""
    return table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)


def _system(files: PyArrowFileIO, folder: str) -> tuple[fs.FileSystem, str]:
    scheme, netloc, path = files.parse_location(folder)
    return files.fs_by_scheme(scheme, netloc), path


def _names(files: PyArrowFileIO, folder: str) -> list[str]:
    system, path = _system(files, folder)
    listed = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [entry.base_name for entry in listed]


def _remove(files: PyArrowFileIO, folder: str) -> None:
    if _names(files, folder):
        system, path = _system(files, folder)
        system.delete_dir(path)
