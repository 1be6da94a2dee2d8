"""Serves a view as a table of Iceberg, which readers open by its catalogue.

Tasks of Spark write the data files of a generation; the catalogue gets one snapshot of them, with a
tag. Publishing moves the branch `main` in one commit, so a reader sees the old snapshot or the new
one, and one that has begun goes on with the files of its own. See
docs/decisions/0223-views-in-iceberg.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from views.base.address import Address
from views.base.iceberg import IcebergPlace, checked_table
from views.project.spec import check_view_name
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.iceberg.column_types import matching_schema, names_in, new_schema, next_schema
from views.sinks.iceberg.options import IcebergOptions
from views.sinks.iceberg.table import (
    Changes,
    ViewTable,
    ViewTables,
    discarding,
    forgetting,
    opening,
    publishing,
    removed_meanwhile,
    requirement,
    rows_in,
    sealing,
    update,
)
from views.sinks.iceberg.write import FileWriter, WrittenFile, keys_in, load
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot


class IcebergSink:
    """A view in a catalogue."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        catalogue: str,
        folder: str,
        namespace: str,
        spark: SparkSession,
        retry_seconds: float,
        options: IcebergOptions,
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._spark = spark
        table = checked_table(options.table or f"{namespace}.{view}")
        self._place = IcebergPlace(catalogue, "" if catalogue else folder, table)
        self._tables = ViewTables(self._place, view, retry_seconds)
        self._opened: Opened | None = None
        self._files: list[WrittenFile] = []

    def check(self, schema: StructType) -> None:
        """Refuse columns that Iceberg cannot name."""
        check_shape(schema, self._key)
        for name in names_in(schema):
            if "." in name:
                raise SinkError(
                    f'column "{name}" has a point in its name, by which Iceberg names fields of '
                    "a struct",
                    hint="name it with AS, without a point",
                )

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        self.check(schema)
        loaded = self._tables.load()
        if loaded is None:
            self._tables.create(new_schema(schema))
        elif generation in loaded.generations:
            raise held_already(self._view, generation)

        def change(loaded: ViewTable) -> Changes:
            metadata = loaded.metadata
            if matching_schema(schema, metadata) is not None:
                return [opening(generation)], []
            added = update("add-schema", schema=next_schema(schema, metadata))
            last = metadata.last_column_id
            return (
                [added, opening(generation)],
                [requirement("last-assigned-field-id", last_assigned_field_id=last)],
            )

        self._tables.commit(change)
        self._opened, self._files = Opened(generation, schema), []

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        loaded, schema = self._begun(current)
        writer = FileWriter(
            loaded.access, loaded.folder(current.generation), schema.model_dump_json()
        )
        self._files = load(rows, writer)

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
        current = opened(self._opened, self._view)
        current.finished()
        loaded, schema = self._begun(current)
        if self._files:
            key = StructType([current.schema[name] for name in self._key])
            assert_unique(keys_in(self._spark, loaded.access, self._files, key), self._key)
        self._tables.commit(lambda now: sealing(now, current.generation, schema, self._files))
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        """Return the number of rows of a sealed generation."""
        return rows_in(self._sealed(generation)[1])

    def address(self, generation: int) -> Address:
        """Return the place where a sealed generation can be read."""
        _, snapshot = self._sealed(generation)
        location = {**self._place.to_location(), "snapshot": str(snapshot.snapshot_id)}
        return Address("iceberg", location)

    def publish(self, generation: int) -> None:
        """Move the branch `main` to a sealed generation, in one commit."""
        before, snapshot = self._sealed(generation)
        with self._tables.errors():
            missing = before.missing(generation, snapshot)
        if missing:
            raise SinkError(
                f'generation {generation} of view "{self._view}" lacks {len(missing)} of its '
                f"files, such as {min(missing)}",
                hint="another program removed them; rebuild the view",
            )

        def change(loaded: ViewTable) -> Changes:
            if loaded.main != before.main:
                raise SinkError(
                    f"another process changed {self._place} at the same time",
                    hint="run it again",
                )
            return publishing(loaded, generation, snapshot)

        if before.main != snapshot.snapshot_id or before.published != generation:
            self._tables.commit(change)
        if not before.is_served:
            self._tables.expose()

    def discard(self, generation: int) -> None:
        """Remove a generation: its snapshot first, so that the rest never looks complete."""
        loaded = self._tables.load()
        if loaded is None or generation not in loaded.generations:
            return
        refuse_published(self._view, generation, loaded.published)
        with self._tables.errors():
            others = loaded.other_readers(generation)
        if others:
            raise SinkError(
                f'generation {generation} of view "{self._view}" cannot be removed: '
                f"{', '.join(others)} of {self._place} has its files",
                hint="drop these branches or tags, which others have made",
            )
        self._tables.commit(lambda now: discarding(now, generation))
        self._tables.remove(loaded, generation)
        self._tables.commit(lambda now: forgetting(now, generation))

    def drop(self) -> None:
        """Remove the table: its stable name, then the generations, then the catalogue's entry."""
        self._tables.drop()

    def published(self) -> int | None:
        """Return the generation that readers see."""
        loaded = self._tables.load()
        return loaded.published if loaded else None

    def generations(self) -> list[int]:
        """List the generations of the table."""
        loaded = self._tables.load()
        return loaded.generations if loaded else []

    def _begun(self, current: Opened) -> tuple[ViewTable, Schema]:
        """Return the table and the schema of the generation that is written."""
        loaded = self._tables.load()
        schema = matching_schema(current.schema, loaded.metadata) if loaded else None
        if loaded is None or schema is None or current.generation not in loaded.generations:
            raise removed_meanwhile(current.generation)
        return loaded, schema

    def _sealed(self, generation: int) -> tuple[ViewTable, Snapshot]:
        loaded = self._tables.load()
        snapshot = loaded.sealed(generation) if loaded else None
        if loaded is None or snapshot is None:
            existing = loaded.generations if loaded else []
            raise not_sealed(self._view, generation, existing)
        return loaded, snapshot
