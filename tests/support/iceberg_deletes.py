"""Delete files of Iceberg tables, which pyiceberg reads and does not write: by its own parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class _DeleteManifest(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def delete_positions(table: Table, places: Sequence[tuple[str, int]]) -> None:
    """Delete rows by the paths of their files and their places there, in one delete file."""
    path = Path(str(table.location()).removeprefix("file://"), "data", f"{uuid4()}.parquet")
    paths, positions = zip(*places, strict=True)
    pq.write_table(pa.table([list(paths), list(positions)], schema=_POSITIONS), path)
    add_deletes(table, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, path, len(places))


def add_deletes(
    table: Table, content: DataFileContent, form: FileFormat, path: Path, rows: int
) -> None:
    """Commit a delete file to a table without partitions, or whose first file has its partition."""
    first = next(iter(table.scan().plan_files())).file
    file = DataFile.from_args(
        content=content,
        file_path=str(path),
        file_format=form,
        partition=first.partition,
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = first.spec_id

    class Commit(_FastAppendFiles):
        def _process_manifests(self, manifests):
            output = self._io.new_output(f"{table.location()}/metadata/{self.commit_uuid}-d.avro")
            writer = _DeleteManifest(
                self.spec(first.spec_id), self.schema(), output, self._snapshot_id, "deflate"
            )
            with writer:
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
            return [*manifests, writer.to_manifest_file()]

    with table.transaction() as transaction:
        Commit(Operation.OVERWRITE, transaction, table.io).commit()
