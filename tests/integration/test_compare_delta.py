"""`changelog verify --target delta:`: deletion vectors, column mapping, files not as written."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.watch import KeyWatch
from views.sinks.delta.deletion_vectors import FEATURE, file_name, packed


@pytest.fixture
def source(dsn, execute):
    execute("CREATE TABLE own (id int PRIMARY KEY, t text)")
    execute("INSERT INTO own SELECT n, 'row ' || n FROM generate_series(1, 50) AS n")
    return dsn


def rows(ids):
    texts = pa.array([f"row {n}" for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int32()), "t": texts})


def compared(dsn, path):
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="own"), of="source")) as source,
        closing(open_target(parse_target(f"delta:{path}"), "own", Path())) as copy,
    ):
        return compare(source, copy, CompareRequest(settle_s=0.0))


def commit(path, version, actions):
    file = path / "_delta_log" / f"{version:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(map(json.dumps, actions)), "utf-8")


def with_deletion_vector(path, table, gone):
    """Write a table of which rows at some places are deleted by a vector."""
    path.mkdir()
    pq.write_table(table, path / "part.parquet")
    identity, data, descriptors = packed({"part": BitMap64(gone)})
    (path / file_name(identity)).write_bytes(data)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "integer"), ("t", "string"))
    ]
    commit(path, 0, [_protocol([FEATURE]), _metadata(fields, {}), _add(path, descriptors["part"])])


def with_column_mapping(path, table):
    """Write a table whose files have other names for its columns."""
    path.mkdir()
    pq.write_table(table.rename_columns(["col-1", "col-2"]), path / "part.parquet")
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            },
        }
        for number, (name, kind) in enumerate((("id", "integer"), ("t", "string")), 1)
    ]
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    commit(path, 0, [_protocol(["columnMapping"]), _metadata(fields, settings), _add(path)])


def _protocol(features):
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }


def _metadata(fields, settings):
    schema = json.dumps({"type": "struct", "fields": fields})
    return {
        "metaData": {
            "id": str(uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "configuration": settings,
            "createdTime": 0,
        }
    }


def _add(path, descriptor=None):
    action = {
        "path": "part.parquet",
        "partitionValues": {},
        "size": (path / "part.parquet").stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    if descriptor:
        action["deletionVector"] = descriptor.to_json()
    return {"add": action}


def test_rows_that_a_deletion_vector_marks_are_not_there(source, tmp_path):
    with_deletion_vector(tmp_path / "right", rows(range(60)), [0, *range(51, 60)])
    report = compared(source, tmp_path / "right")
    assert (report.verified, report.target_rows) == (True, 50), report.lines()
    with_deletion_vector(tmp_path / "wrong", rows(range(1, 51)), [6])
    (difference,) = compared(source, tmp_path / "wrong").differences
    assert (difference.key, difference.kind) == ({"id": "7"}, "missing")


def test_columns_are_found_by_their_mapping(source, tmp_path):
    with_column_mapping(tmp_path / "copy", rows(range(1, 51)))
    report = compared(source, tmp_path / "copy")
    assert (report.verified, report.compared) == (True, ("id", "t")), report.lines()


def test_the_report_says_which_versions_were_read(source, tmp_path, monkeypatch):
    path = tmp_path / "copy"
    write_deltalake(path, rows(range(1, 50)))
    write_deltalake(path, rows([50]), mode="append")
    assert "version 1 of the Delta table was read" in compared(source, path).notes
    DeltaTable(path).delete("id = 3")
    look = KeyWatch._look

    def mended(watch, watched):
        write_deltalake(path, rows([3]), mode="append")
        return look(watch, watched)

    monkeypatch.setattr(KeyWatch, "_look", mended)
    report = compared(source, path)
    assert report.verified is True, report.lines()
    assert "versions 2 to 3 of the Delta table were read" in report.notes


@pytest.mark.parametrize(
    ("harm", "code", "part"),
    [
        (lambda file: file.unlink(), 2, "which cannot be opened: No such file or directory"),
        (lambda file: file.write_bytes(file.read_bytes() + b"x"), 2, "of the table says"),
        (lambda file: file.write_bytes(b"x" * file.stat().st_size), 1, "cannot be read"),
    ],
)
def test_a_file_that_is_not_as_written_is_an_error(source, tmp_path, run_command, harm, code, part):
    path = tmp_path / "copy"
    write_deltalake(path, rows(range(1, 51)))
    (file,) = path.glob("*.parquet")
    harm(file)
    words = ["verify", "own", "--source", source, "--target", f"delta:{path}"]
    ended, _, said = run_command(words)
    assert (ended, part in said) == (code, True), said


def test_a_folder_without_a_table_is_told(source, tmp_path, run_command):
    words = ["verify", "own", "--source", source, "--target", f"delta:{tmp_path}/nowhere"]
    ended, _, said = run_command(words)
    assert (ended, f"there is no Delta table at {tmp_path}/nowhere" in said) == (2, True), said
