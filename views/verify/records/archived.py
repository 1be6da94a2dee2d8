"""Read an archive of the log: its manifests, its files and its schemas, by the verifier's own code.

Each manifest and each file is compared with the digest that stands for it, and the files of a topic
have to follow each other without a hole from where it was copied whole to the frontier's ends.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from changelog.contract.base.errors import LogError, UnavailableError
from changelog.contract.base.secret import redacted
from changelog.contract.log.form import Output
from changelog.contract.log.frontier import Frontier
from changelog.native.columns import NO_EPOCH, NO_PLACE, SCHEMA, RecordFault
from changelog.runtime.stores import FolderFiles, files_in

_NUMBERED = re.compile(r"[0-9]{8}\.json")  # others are not of the archive
_POSITION = np.dtype([("epoch", ">u4"), ("commit_lsn", ">u8"), ("sequence", ">u8")])


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A record of an archive, with the calls of a message from the brokers."""

    row: Mapping[str, Any]

    def partition(self) -> int:
        """Return its partition."""
        return int(self.row["partition"])

    def offset(self) -> int:
        """Return its offset."""
        return int(self.row["offset"])

    def key(self) -> bytes | None:
        """Return its key."""
        key: bytes | None = self.row["key"]
        return key

    def value(self) -> bytes | None:
        """Return its value."""
        value: bytes | None = self.row["value"]
        return value

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return its headers."""
        return [(header["key"], header["value"]) for header in self.row["headers"] or ()]


class LogArchive:
    """An archive at an absolute path or URI."""

    def __init__(self, root: str) -> None:
        """Store the place; reads nothing."""
        self._root = root

    @cached_property
    def _files(self) -> FolderFiles:
        return files_in(self._root)

    @cached_property
    def _manifests(self) -> list[dict[str, Any]]:
        """The manifests, checked, the oldest first."""
        return self._chained("manifests")

    @cached_property
    def _instead(self) -> dict[str, list[Any]]:
        """The files that were rewritten without erased keys, by the name of the old one."""
        return {
            name: file
            for erasure in self._chained("erasures")
            for name, file in erasure["files"].items()
        }

    def _chained(self, folder: str) -> list[dict[str, Any]]:
        """Return the documents of a folder, each of which names the one before it."""
        from obstore.exceptions import BaseError  # noqa: PLC0415 - of another extra

        try:
            names = sorted(filter(_NUMBERED.fullmatch, files_in(self._place(folder)).names()))
        except (BaseError, OSError) as error:
            raise self._away(folder, error) from error
        manifests: list[dict[str, Any]] = []
        before = ""
        for number, base in enumerate(names, start=1):
            name = f"{folder}/{base}"
            data = self._bytes(name)
            line, _, digest = data.partition(b"\n")
            if hashlib.sha256(line).hexdigest() != digest.decode("ascii", "replace").strip():
                raise self._altered(name)
            manifest = json.loads(line)
            if manifest["number"] != number or manifest["before"] != before:
                raise LogError(f"the manifest {self._shown(name)} does not follow the one before")
            before = hashlib.sha256(data).hexdigest()
            manifests.append(manifest)
        return manifests

    def texts(self) -> dict[int, str]:
        """Return the text of every schema of a registry that the archive has, by its id."""
        texts: dict[int, str] = {}
        for manifest in self._manifests:
            frontier = Frontier.from_json(json.dumps(manifest["frontier"]))
            for topic, part in manifest["topics"].items():
                if part["schemas"] and frontier.scope_of(topic).form.output is Output.AVRO:
                    texts |= {int(number): text for number, text in part["schemas"]["writers"]}
        return texts

    def values_of(self, topic: str) -> list[str]:
        """Return the versions of the schema of a topic's values, the oldest first."""
        for manifest in reversed(self._manifests):
            schemas = manifest["topics"].get(topic, {}).get("schemas")
            if schemas:
                return [text for _, text in schemas["writers"]]
        return []

    def starts(self, frontier: Frontier, topic: str) -> tuple[int, ...]:
        """Return per partition the first offset of a topic that is archived for a frontier."""
        starts, _ = self._range(frontier, topic)
        return starts

    def tables(
        self, frontier: Frontier, topic: str, begins: Sequence[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the records of a topic file by file: the partition, and the rows.

        `begins`: per partition the first offset that counts.

        Raises LogError: a file is missing, was altered, or leaves a hole.
        """
        places, files = self._range(frontier, topic)
        at, ends = list(places), frontier.ends[topic]
        for name, partition, start, end, _, _, digest in files:
            if partition >= len(ends) or start >= ends[partition]:
                continue
            if start != at[partition]:
                raise LogError(
                    f'topic "{topic}", partition {partition}: the archive has no records from '
                    f"offset {at[partition]} to {start}"
                )
            at[partition] = end
            data = self._bytes(name)
            if hashlib.sha256(data).hexdigest() != digest:
                raise self._altered(name)
            table = pq.read_table(io.BytesIO(data))
            offsets = table["offset"]
            counts = pc.and_(
                pc.greater_equal(offsets, begins[partition]), pc.less(offsets, ends[partition])
            )
            yield partition, table.filter(counts)

    def messages(
        self, frontier: Frontier, topic: str, begins: Sequence[int]
    ) -> Iterator[ArchivedRecord]:
        """Yield the records of a topic one by one; raises as `tables`."""
        for _, table in self.tables(frontier, topic, begins):
            for batch in table.to_batches():
                yield from map(ArchivedRecord, batch.to_pylist())

    def _range(
        self, frontier: Frontier, topic: str
    ) -> tuple[tuple[int, ...], list[tuple[str, int, int, int, int, int, str]]]:
        """Return the first offsets of a topic, and its files up to a frontier."""
        ends, topic_id = frontier.ends[topic], frontier.topic_ids.get(topic)
        place = (frontier.epoch, int(frontier.lsn))
        parts: list[dict[str, Any]] = []
        for manifest in self._manifests:
            own = Frontier.from_json(json.dumps(manifest["frontier"]))
            part = manifest["topics"].get(topic)
            if part is None or part["topic_id"] != topic_id:
                parts = []
                continue
            parts = [part] if part["base"] else [*parts, part]
            reached = (own.epoch, int(own.lsn))
            is_there = len(part["ends"]) >= len(ends) and all(
                end <= reach for end, reach in zip(ends, part["ends"], strict=False)
            )
            if place <= reached and is_there:
                if not parts[0]["base"] or (len(parts) == 1 and place != reached):
                    break
                files = [tuple(self._newest(file)) for part in parts for file in part["files"]]
                starts = (*parts[0]["starts"], *[0] * len(ends))[: len(ends)]
                return starts, files
        raise LogError(
            f'the archive {self._shown("")} does not give topic "{topic}" at LSN {frontier.lsn}',
            hint="`changelog archive --check` reads all of it",
        )

    def _newest(self, file: list[Any]) -> list[Any]:
        """Return the file that stands in the place of one."""
        while file[0] in self._instead:
            file = self._instead[file[0]]
        return file

    def _bytes(self, name: str) -> bytes:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - of another extra

        try:
            return self._files.read(name)
        except FileNotFoundError as error:
            raise LogError(f"the archive has lost {self._shown(name)}") from error
        except (BaseError, OSError) as error:
            raise self._away(name, error) from error

    def _altered(self, name: str) -> LogError:
        return LogError(f"{self._shown(name)} was altered: its digest is another")

    def _away(self, name: str, error: Exception) -> UnavailableError:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return UnavailableError(f"the archive does not give {self._shown(name)}: {redacted(line)}")

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _shown(self, name: str) -> str:
        return redacted(self._place(name))


def as_columns(table: pa.Table, beginning: bytes) -> pa.Table:
    """Return records of an archive in the verifier's own columns.

    `beginning`: the first bytes of every key.
    """
    count = table.num_rows
    keys = table["key"].combine_chunks().cast(pa.binary())
    places = {
        name: np.full(count, nothing, kind)
        for (name, kind), nothing in zip(
            (("epoch", np.uint32), ("commit_lsn", np.uint64), ("sequence", np.uint64)),
            NO_PLACE,
            strict=True,
        )
    }
    rows, positions = _positions(table["headers"].combine_chunks())
    for name, values in places.items():
        values[rows] = positions[name]
    is_key = pc.equal(pc.binary_slice(keys, 0, len(beginning)), pa.scalar(beginning, pa.binary()))
    faults = np.where(places["epoch"] == NO_EPOCH, RecordFault.NO_PLACE, RecordFault.SOUND)
    faults = np.where(pc.fill_null(is_key, False).to_numpy(False), faults, RecordFault.OTHER_KEY)
    faults = np.where(keys.is_null().to_numpy(False), RecordFault.NO_KEY, faults)
    columns = {
        "part": table["partition"],
        "off": table["offset"],
        **places,
        "key": keys,
        "value": table["value"],
        "fault": faults.astype(np.uint8),
    }
    return pa.table(columns, schema=SCHEMA)


def _positions(headers: pa.ListArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that have a position, and the position of each."""
    entries, rows = headers.flatten(), pc.list_parent_indices(headers)
    is_position = pc.equal(pc.struct_field(entries, "key"), "position")
    values = pc.struct_field(entries, "value").filter(is_position)
    owners, firsts = np.unique(rows.filter(is_position).to_numpy(), return_index=True)
    values = values.take(pa.array(firsts))
    is_whole = pc.fill_null(pc.equal(pc.binary_length(values), _POSITION.itemsize), False)
    raw = b"".join(values.filter(is_whole).to_pylist())
    return owners[is_whole.to_numpy(False)], np.frombuffer(raw, _POSITION)
