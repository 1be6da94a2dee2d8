"""The newest version of a Delta table as a side of a comparison, read by deltalake's own engine.

That engine applies deletion vectors and column mapping; other readers of the table's files give
rows that are deleted, or nulls. DuckDB takes the rows from it as a stream of Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from changelog.compare.duckdb_side import DuckdbSide, check_columns
from changelog.compare.needed import needed
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.contract.base.secret import redacted


class DeltaSide(DuckdbSide):
    """A Delta table by its path or URI; each statement reads the version that is newest then."""

    def __init__(self, uri: str) -> None:
        """Check that the table can be read.

        Raises ConfigurationError: there is no such table, it cannot be read, or the module
        deltalake is not installed; SinkError: one of its files is missing or altered.
        """
        self._uri = uri if "://" in uri else str(Path(uri).absolute())
        self._versions: set[int] = set()
        needed("deltalake", "delta:")
        super().__init__(f"delta:{redacted(uri)}", None)
        self.relation = "delta"
        check_columns(self, "delta:PATH, the folder that has the table's _delta_log")

    def identity(self) -> Mapping[str, str]:
        """Return the absolute path of a table on this machine."""
        return {} if "://" in self._uri else {"path": self._uri}

    def _paths(self) -> Iterable[str]:
        return []  # a version's files do not change

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Register the rows of the newest version."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415 - likewise

        try:
            table = DeltaTable(self._uri)
            self._check_files(table.version(), _sizes(table))
            rows = QueryBuilder().register("copy", table).execute("SELECT * FROM copy")
            stream = pa.RecordBatchReader.from_stream(rows)
        except TableNotFoundError as error:
            raise ConfigurationError(
                f"there is no Delta table at {self.place.removeprefix('delta:')}",
                hint="delta:PATH, the folder that has the table's _delta_log",
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            raise SinkError(f"{self.place} cannot be read: {redacted(str(error))}") from error
        self.database.register(self.relation, stream)
        self._versions.add(table.version())
        try:
            yield
        finally:
            self.database.unregister(self.relation)

    def _check_files(self, version: int, sizes: Iterable[tuple[str, int]]) -> None:
        """Check the local data files of a version against the sizes in the table's log.

        Raises SinkError: one is missing or has another size.
        """
        root = self._uri.removeprefix("file://")
        if "://" in root:
            return
        for path, size_bytes in sizes:
            if "://" in path:
                continue
            file = os.path.join(root, unquote(path))  # noqa: PTH118 - as fast as it gets
            try:
                found_bytes = os.stat(file).st_size  # noqa: PTH116 - likewise
            except OSError as error:
                raise SinkError(
                    f"{self.place} cannot be read: version {version} names the file {path}, which "
                    f"cannot be opened: {error.strerror}",
                    hint="was it removed by hand, or by a vacuum that keeps too little?",
                ) from error
            if found_bytes != size_bytes:
                raise SinkError(
                    f"{self.place} cannot be read: the file {path} has {found_bytes:,} bytes, and "
                    f"version {version} of the table says {size_bytes:,}",
                    hint="the file was altered after it was written",
                )

    def notes(self) -> tuple[str, ...]:
        """Return which versions of the table were read."""
        first, last = min(self._versions), max(self._versions)
        if first == last:
            return (f"version {first} of the Delta table was read",)
        return (f"versions {first} to {last} of the Delta table were read",)


def _sizes(table: object) -> list[tuple[str, int]]:
    """Return path and size of each data file, as the table's log has them."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    actions = pa.table(table.get_add_actions(flatten=True))  # type: ignore[attr-defined]
    return list(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
