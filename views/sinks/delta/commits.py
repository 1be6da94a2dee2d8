"""Writes commits of Delta tables with deletion vectors, which deltalake reads but cannot write.

A commit is a file of JSON lines with the next number. It is atomic because the file is created only
if it does not exist (Delta transaction log protocol, "Delta Log Entries" and "Actions").
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from deltalake import DeltaTable

from changelog.contract.base.errors import SinkError
from replay.base.clock import clock_ms
from replay.spark.files import Files
from views.sinks.delta.deletion_vectors import FEATURE, Descriptor

_COMMIT = re.compile(r"\d{20}\.json")
_WRITER_FEATURES: Mapping[int, tuple[str, ...]] = {1: (), 2: ("appendOnly", "invariants")}
"""The features that versions of the protocol without a list of features imply."""

_BOUNDS = ("minValues", "maxValues", "nullCount")
"""Statistics of a file's columns in the log."""

Action = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table."""

    path: str  # relative to the table
    size: int  # in bytes
    stored: int  # rows in the file, including removed ones
    # the place of its deletion vector; None if no row is removed
    vector: Descriptor | None = None
    # the text of each partition column's value, None for a null
    partition: Mapping[str, str | None] = field(default_factory=dict)
    # statistics of its columns, in the log's form
    bounds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return the number of rows that are not removed."""
        return self.stored - (self.vector.rows if self.vector is not None else 0)


@dataclass(frozen=True, slots=True)
class Commits:
    """The log of one table."""

    files: Files  # access to it
    uri: str  # of the table

    def adds(self) -> list[Action]:
        """List the files of the table, as the actions that added them.

        Reading starts at the last commit with metadata, because each commit of ours with metadata
        lists all files.
        """
        commits: list[list[Action]] = []
        for version in sorted(self._versions(), reverse=True):
            commits.append(self._actions(version))
            if any("metaData" in action for action in commits[-1]):
                break
        return _living(commits)

    def data_files(self) -> list[DataFile]:
        """List the files of a generation of ours, from its first commit on.

        Raises VectorError: a deletion vector is not of the form that we write.
        """
        commits = [self._actions(version) for version in sorted(self._versions(), reverse=True)]
        return [_data_file(add) for add in _living(commits)]

    def commit(self, version: int, actions: Sequence[Action]) -> None:
        """Write a version of the table."""
        operation = {"timestamp": clock_ms(), "operation": "WRITE", "operationParameters": {}}
        lines = [json.dumps(action) for action in ({"commitInfo": operation}, *actions)]
        try:
            self.files.create(self._place(version), "\n".join(lines).encode())
        except FileExistsError as error:
            raise SinkError(
                f"another process changed {self.uri} at the same time", hint="run it again"
            ) from error

    def _versions(self) -> list[int]:
        names = self.files.names(f"{self.uri}/_delta_log")
        return [int(name[:20]) for name in names if _COMMIT.fullmatch(name)]

    def _actions(self, version: int) -> list[Action]:
        lines = self.files.read(self._place(version)).splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def _place(self, version: int) -> str:
        return f"{self.uri}/_delta_log/{version:020d}.json"


def description_actions(
    table: DeltaTable,
    *,
    name: str,
    description: str,
    configuration: Mapping[str, str],
    vectors: bool,
) -> list[Action]:
    """Return the actions that describe a table: protocol and metadata.

    `table`: one with the same columns. `vectors`: whether it has deletion vectors.
    """
    before = table.protocol()
    protocol: Action = {
        "minReaderVersion": before.min_reader_version,
        "minWriterVersion": before.min_writer_version,
    }
    readers, writers = set(before.reader_features or ()), set(before.writer_features or ())
    if vectors and FEATURE not in readers:
        if before.writer_features is None:
            features = _WRITER_FEATURES.get(before.min_writer_version)
            if features is None:
                raise SinkError(f"its writers need version {before.min_writer_version} of Delta")
            writers |= set(features)
        readers, writers = readers | {FEATURE}, writers | {FEATURE}
    if readers or writers:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": sorted(readers), "writerFeatures": sorted(writers)}
    metadata = {
        "id": str(uuid.uuid4()),
        "name": name,
        "description": description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": list(table.metadata().partition_columns),
        "configuration": dict(configuration),
        "createdTime": clock_ms(),
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def adding(file: DataFile, folder: str = "") -> Action:
    """Return the action that adds a file to a table.

    `file`: its path is relative to the folder. `folder`: relative to the table, with a slash at the
    end.
    """
    add: Action = {
        "path": quote(folder + file.path, safe="/="),
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps(
            {"numRecords": file.stored, **file.bounds, "tightBounds": file.vector is None}
        ),
    }
    if file.vector is not None:
        add["deletionVector"] = file.vector.to_json(folder)
    return {"add": add}


def removing(add: Action) -> Action:
    """Return the action that removes a file from a table, together with its vector."""
    kept = ("path", "partitionValues", "size", "deletionVector")
    file = {name: add[name] for name in kept if name in add}
    ended = {"deletionTimestamp": clock_ms(), "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**file, **ended}}


def path_of(action: Action) -> str:
    """Return the file that an action adds or removes, relative to the table."""
    return unquote(action["path"])


def _living(commits: Sequence[Sequence[Action]]) -> list[Action]:
    """Return the files that these commits, newest first, have added and not removed."""
    files: dict[tuple[str, str], Action] = {}
    for action in (action for actions in reversed(commits) for action in actions):
        if "remove" in action:
            files.pop(_name(action["remove"]), None)
        elif "add" in action:
            files[_name(action["add"])] = action["add"]
    return list(files.values())


def _name(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    return path_of(action), json.dumps(vector, sort_keys=True)


def _data_file(add: Action) -> DataFile:
    raw = add.get("deletionVector")
    stats = json.loads(add["stats"])
    return DataFile(
        path_of(add),
        add["size"],
        stats["numRecords"],
        Descriptor.from_json(raw) if raw is not None else None,
        add.get("partitionValues") or {},
        {name: stats[name] for name in _BOUNDS if name in stats},
    )
