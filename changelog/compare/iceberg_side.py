"""The newest snapshot of an Iceberg table as a side of a comparison, read by pyiceberg.

pyiceberg finds columns by their ids, whatever files call them, and leaves out rows that position
deletes mark. DuckDB takes the rows as a stream of Arrow, a few of one file at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from changelog.compare.duckdb_side import DuckdbSide
from changelog.compare.iceberg_file import read_file, with_ends
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.installed.extras import check_extra

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table

_FORMS = (
    "iceberg:CATALOG/NAMESPACE.TABLE, the catalogue as pyiceberg finds it in ~/.pyiceberg.yaml or "
    "in PYICEBERG_CATALOG__… variables; or iceberg:./FOLDER or iceberg:URI, the folder of a table "
    "or a file of its metadata"
)
_METADATA = ".metadata.json"
_NUMBERED = re.compile(r"(?:v(\d+)|(\d+)-.+?)(?:\.gz)?\.metadata\.json")
_COMPACT = (
    "compact the table first, which applies its deletes: Spark's rewrite_data_files, with "
    "'delete-file-threshold' at '1'"
)


class IcebergSide(DuckdbSide):
    """An Iceberg table, by a catalogue or a path; each statement reads its newest snapshot."""

    def __init__(self, text: str) -> None:
        """Check that the table can be read.

        Raises ConfigurationError: there is no table or catalogue of the name, it has deletes
        or files that are not read, or the extra [iceberg] is not installed; SinkError: it cannot be
        read.
        """
        check_extra("iceberg", "a copy of the kind iceberg:")
        self._address = _parsed(text)
        self._catalogue: Catalog | None = None
        self._table = ""
        self._snapshots: list[str] = []
        self._metadata = ""
        self._broken: Exception | None = None
        super().__init__(f"iceberg:{redacted(text)}", None)
        self.relation = "iceberg"
        try:
            self.columns()
        except BaseException:
            self.close()
            raise

    def identity(self) -> Mapping[str, str]:
        """Return the table's own id, the snapshot that was read last, and its metadata."""
        return {
            "table_uuid": self._table,
            "snapshot": self._snapshots[-1],
            "metadata": redacted(self._metadata),
        }

    def _paths(self) -> Iterable[str]:
        return []  # a snapshot's files do not change

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Register the rows of the newest snapshot."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra

        self._broken = None
        try:
            table = self._load()
            self._note(table)
            tasks = [*table.scan().plan_files()]
            self._check_forms(tasks)
            schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        except (ConfigurationError, SinkError):
            raise
        except Exception as error:
            if "equality deletes" in str(error):
                raise ConfigurationError(
                    f"{self.place} has equality deletes, which pyiceberg does not read",
                    hint=_COMPACT,
                ) from error
            raise self._unreadable(error) from error
        rows = pa.RecordBatchReader.from_batches(schema, self._batches(table, tasks, schema))
        self.database.register(self.relation, rows)
        try:
            yield
        finally:
            self.database.unregister(self.relation)

    def _load(self) -> Table:
        """Return the table as it is now.

        Raises ConfigurationError: there is none; SinkError: there was one.
        """
        from pyiceberg.exceptions import (  # noqa: PLC0415 - an extra
            NoSuchNamespaceError,
            NoSuchTableError,
        )
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - likewise

        try:
            if isinstance(self._address, tuple):
                name, table = self._address
                if self._catalogue is None:
                    self._catalogue = _catalogue(name)
                return self._catalogue.load_table(table)
            try:
                return StaticTable.from_metadata(_newest(self._address))
            except FileNotFoundError as error:
                raise NoSuchTableError from error
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            if self._table:
                raise SinkError(
                    f"{self.place} is gone: it was dropped or moved while it was compared"
                ) from error
            raise ConfigurationError(
                f"there is no Iceberg table at {self.place.removeprefix('iceberg:')}", hint=_FORMS
            ) from error

    def _note(self, table: Table) -> None:
        """Note which snapshot is read.

        Raises SinkError: another table has taken the name.
        """
        metadata = table.metadata
        if self._table and self._table != str(metadata.table_uuid):
            raise SinkError(
                f"{self.place} is another table now: it was replaced while it was compared",
                hint="compare again",
            )
        self._table = str(metadata.table_uuid)
        number = metadata.current_snapshot_id
        snapshot = "none: the table is empty" if number is None else str(number)
        if snapshot not in self._snapshots[-1:]:
            self._snapshots.append(snapshot)
        self._metadata = table.metadata_location

    def _check_forms(self, tasks: Sequence[FileScanTask]) -> None:
        """Check that the files of a snapshot can be read.

        pyiceberg takes all vectors in a file for valid, also old ones.

        Raises ConfigurationError: some rows are deleted by vectors, or files are not Parquet.
        """
        from pyiceberg.manifest import FileFormat  # noqa: PLC0415 - an extra

        kinds = {file.file_format for task in tasks for file in task.delete_files}
        if FileFormat.PUFFIN in kinds:
            raise ConfigurationError(
                f"{self.place} has deletion vectors (format version 3), which are not read",
                hint=_COMPACT,
            )
        others = {task.file.file_format for task in tasks} - {FileFormat.PARQUET}
        if others:
            raise ConfigurationError(
                f"{self.place} has files of {', '.join(sorted(others))}: only Parquet is read",
                hint="rewrite the table as Parquet, or compare a copy of it",
            )

    def _batches(
        self, table: Table, tasks: Sequence[FileScanTask], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of one file after the other, leaving out what is deleted.

        A delete file counts for the files that were there before it alone: each has its own.
        """
        from pyiceberg.io.pyarrow import _read_deletes  # noqa: PLC0415 - an extra

        places: dict[str, Mapping[str, pa.ChunkedArray]] = {}
        try:
            for task in tasks:
                for file in task.delete_files:
                    if file.file_path not in places:
                        places[file.file_path] = _read_deletes(table.io, file)
                deletes = [places[file.file_path] for file in task.delete_files]
                path = task.file.file_path
                gone = [marked[path] for marked in deletes if path in marked]
                for batch in read_file(table, table.schema(), task, gone):
                    yield with_ends(batch.cast(schema))
        except Exception as error:
            self._broken = error  # DuckDB would tell it with the stack
            raise

    def _failure(self, error: duckdb.Error) -> SinkError:
        return super()._failure(error) if self._broken is None else self._unreadable(self._broken)

    def _unreadable(self, error: Exception) -> SinkError:
        text = " ".join(redacted(str(error)).split()) or type(error).__name__
        return SinkError(f"{self.place} cannot be read: {text}")

    def notes(self) -> tuple[str, ...]:
        """Return which snapshots of the table were read, and the metadata that has the last."""
        listed = ", then ".join(self._snapshots)
        return (f"snapshot {listed} of the Iceberg table was read ({redacted(self._metadata)})",)

    def close(self) -> None:
        """Close the catalogue, too."""
        super().close()
        if self._catalogue is not None:
            self._catalogue.close()


def _parsed(text: str) -> str | tuple[str, str]:
    """Return a path or URI, or the name of a catalogue and that of a table in it.

    Raises ConfigurationError: it is neither.
    """
    if "://" in text:
        return text.removeprefix("file://")
    if text.startswith(("/", ".")) or text.endswith(_METADATA):
        return str(Path(text).absolute())
    catalogue, _, table = text.partition("/")
    if not catalogue or "/" in table or not all(["." in table, *table.split(".")]):
        raise ConfigurationError(
            "the address of the Iceberg table names no table of a catalogue and no path",
            hint=_FORMS,
        )
    return catalogue, table


def _catalogue(name: str) -> Catalog:
    """Open a catalogue by its name in the configuration of pyiceberg.

    Raises ConfigurationError: it is not there, or wrong, or the catalogue's client is missing.
    """
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
    from pyiceberg.exceptions import NotInstalledError  # noqa: PLC0415 - likewise

    try:
        return load_catalog(name)
    except (ValueError, ImportError, NotInstalledError) as error:
        raise ConfigurationError(
            f"the catalogue {name} of Iceberg cannot be opened: {redacted(str(error))}", hint=_FORMS
        ) from error


def _newest(place: str) -> str:
    """Return the file of the newest metadata of a table, by the path of its folder or a file.

    Raises FileNotFoundError: there is none; ConfigurationError: nothing says which is newest.
    """
    if place.endswith(_METADATA):
        return place
    folder = f"{place.rstrip('/')}/metadata"
    if hint := _hinted(folder):
        return hint
    if "://" in place:
        raise ConfigurationError(
            "no file version-hint.text says which metadata of the Iceberg table is the newest",
            hint=_FORMS,
        )
    numbered: dict[int, list[str]] = {}
    for file in Path(folder).iterdir():
        if named := _NUMBERED.fullmatch(file.name):
            numbered.setdefault(int(named[1] or named[2]), []).append(str(file))
    if not numbered:
        raise FileNotFoundError(folder)
    files = numbered[max(numbered)]
    if len(files) > 1:
        raise ConfigurationError(
            f"{len(files)} files of metadata in {folder} have the number {max(numbered)}, and only "
            "the table's catalogue knows which counts",
            hint=_FORMS,
        )
    return files[0]


def _hinted(folder: str) -> str:
    """Return the metadata that a table without a catalogue calls the newest, or an empty text.

    The hint is written after the metadata, so there may be newer ones.
    """
    from pyiceberg.io import load_file_io  # noqa: PLC0415 - an extra

    files = load_file_io(location=folder)
    hint = files.new_input(f"{folder}/version-hint.text")
    if not hint.exists():
        return ""
    with hint.open() as stream:
        text = stream.read().decode().strip()
    if text.endswith(_METADATA):
        return f"{folder}/{text}"
    if not text.isdecimal():
        return f"{folder}/{text}{_METADATA}"
    number = int(text)
    newest = ""
    while path := next(
        (
            path
            for path in (f"{folder}/v{number}{_METADATA}", f"{folder}/v{number}.gz{_METADATA}")
            if files.new_input(path).exists()
        ),
        "",
    ):
        newest, number = path, number + 1
    if not newest:
        raise FileNotFoundError(f"{folder}/v{number}{_METADATA}")
    return newest
