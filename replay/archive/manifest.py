"""Manifests of an archive: its segments, the files of each, and what they are complete for. Pure.

    {root}/manifests/00000007.json              one for each segment, created once, never altered
    {root}/segments/00000007-EPOCH-LSN-RUN/…    the files that it names

A segment reaches from the frontier of the one before it to its own. Of each topic it has every
record between the two, or, as a *base*, what the log had from its start on: then the state is exact
at the segment's own frontier and after it, and nothing is known of what lies between the two.

A manifest is a line of JSON, and a line with its SHA-256. It holds the digest of the manifest
before it and of each of its files, so a changed byte anywhere is noticed.

    {root}/erasures/00000001.json               files that stand for others, without erased keys

An erasure says which files have been written anew without some records, and what stands in their
place. Manifests stay as they are, and whoever reads them takes the other file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from changelog.contract.base.errors import LogError
from changelog.contract.log.frontier import Frontier, FrontierRecord

FORMAT = 1


class ArchiveError(LogError):
    """An archive of the log cannot be read or written, or is not as its manifests say."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file."""

    name: str  # relative to the archive
    partition: int  # of all its records
    start: int  # the first offset that it covers
    end: int  # the first offset that it does not cover
    records: int
    size: int  # in bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSchemas:
    """The schemas of a topic, as they were when its records were copied."""

    key_id: int | None  # of the keys; None without one
    key: str  # the schema of the keys; empty without one
    writers: Mapping[int, str]  # every version of the value's schema by its id, the oldest first
    reader_id: int  # of the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """The part of a topic that a segment holds."""

    topic_id: str  # Kafka's id
    starts: tuple[int, ...]  # per partition the first offset that the segment covers
    ends: tuple[int, ...]  # per partition the first offset that it does not cover
    # why the topic was copied from its start; empty where the segment goes on from the one before
    base: str = ""
    files: tuple[ArchivedFile, ...] = ()
    schemas: ArchivedSchemas | None = None  # None where they are those of the segment before


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One manifest."""

    number: int  # from 1 on
    before: str  # the digest of the manifest before it; empty for the first
    at: datetime  # when it was made
    record: FrontierRecord  # the frontier that it reaches
    frontiers: ArchivedFile  # all frontiers since the segment before, `record` the last of them
    frontier_topic_id: str  # Kafka's id of their topic
    is_dense: bool  # whether no frontier is missing between the one before it and its own
    topics: Mapping[str, ArchivedTopic]  # by name
    # topics that the log cannot give exactly, each with the reason
    left_out: Mapping[str, str] = field(default_factory=dict)
    sha256: str = field(default="", compare=False)  # of its manifest, once it is written

    @property
    def frontier(self) -> Frontier:
        """Return the frontier that the segment reaches."""
        return self.record.frontier

    @property
    def files(self) -> list[ArchivedFile]:
        """Return all files of the segment."""
        return [self.frontiers, *(file for topic in self.topics.values() for file in topic.files)]

    def to_bytes(self) -> bytes:
        """Return the content of the manifest."""
        return _manifest(
            self,
            {
                "frontier": json.loads(self.frontier.to_json()),
                "offset": self.record.offset,
                "appended_ms": self.record.appended_ms,
                "frontiers": _file_json(self.frontiers),
                "frontier_topic_id": self.frontier_topic_id,
                "is_dense": self.is_dense,
                "topics": {name: _topic_json(topic) for name, topic in self.topics.items()},
                "left_out": dict(self.left_out),
            },
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Parse the output of `to_bytes`.

        Raises ArchiveError: it was altered, or is of another version of this program.
        """
        raw = _checked_line(data, name)
        frontier = Frontier.from_json(json.dumps(raw["frontier"]))
        return cls(
            number=raw["number"],
            before=raw["before"],
            at=datetime.fromisoformat(raw["at"]),
            record=FrontierRecord(frontier, raw["offset"], raw["appended_ms"]),
            frontiers=ArchivedFile(*raw["frontiers"]),
            frontier_topic_id=raw["frontier_topic_id"],
            is_dense=raw["is_dense"],
            topics={topic: _topic(entry) for topic, entry in raw["topics"].items()},
            left_out=raw["left_out"],
            sha256=hashlib.sha256(data).hexdigest(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedErasure:
    """Files that were rewritten without the records of some keys."""

    number: int  # from 1 on
    before: str  # the digest of the erasure before it; empty for the first
    at: datetime  # when it was made
    topic: str
    files: Mapping[str, ArchivedFile]  # by the name of the file in whose place it stands

    def to_bytes(self) -> bytes:
        """Return the content of the erasure's file, in the form of a manifest."""
        files = {name: _file_json(file) for name, file in self.files.items()}
        return _manifest(self, {"topic": self.topic, "files": files})

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """Parse the output of `to_bytes`; raises as `Segment.from_bytes`."""
        raw = _checked_line(data, name)
        return cls(
            number=raw["number"],
            before=raw["before"],
            at=datetime.fromisoformat(raw["at"]),
            topic=raw["topic"],
            files={old: ArchivedFile(*file) for old, file in raw["files"].items()},
        )


def with_erasures(
    segments: Sequence[Segment], erasures: Sequence[ArchivedErasure]
) -> list[Segment]:
    """Return segments that name the rewritten files in place of the erased ones."""
    instead = {old: new for erasure in erasures for old, new in erasure.files.items()}

    def newest(file: ArchivedFile) -> ArchivedFile:
        while file.name in instead:
            file = instead[file.name]
        return file

    return [
        replace(
            segment,
            topics={
                name: replace(topic, files=tuple(map(newest, topic.files)))
                for name, topic in segment.topics.items()
            },
        )
        for segment in segments
    ]


def _manifest(part: Segment | ArchivedErasure, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest: one line of JSON, and its digest."""
    head = {
        "format": FORMAT,
        "number": part.number,
        "before": part.before,
        "at": part.at.isoformat(),
    }
    line = json.dumps({**head, **content}, separators=(",", ":"), sort_keys=True).encode()
    return b"%s\n%s\n" % (line, hashlib.sha256(line).hexdigest().encode())


def _checked_line(data: bytes, name: str) -> dict[str, Any]:
    """Return the content of a manifest.

    Raises ArchiveError: it was altered, or is of another version of this program.
    """
    line, _, digest = data.partition(b"\n")
    if hashlib.sha256(line).hexdigest().encode() != digest.strip():
        raise ArchiveError(f"the manifest {name} was altered: its digest is another")
    raw: dict[str, Any] = json.loads(line)
    if raw["format"] != FORMAT:
        raise ArchiveError(
            f"the manifest {name} has format {raw['format']}, this program reads {FORMAT}",
            hint="read it with the version that has written it",
        )
    return raw


def _file_json(file: ArchivedFile) -> list[Any]:
    place = [file.name, file.partition, file.start, file.end]
    return [*place, file.records, file.size, file.sha256]


def _topic_json(topic: ArchivedTopic) -> dict[str, Any]:
    schemas = topic.schemas
    return {
        "topic_id": topic.topic_id,
        "starts": list(topic.starts),
        "ends": list(topic.ends),
        "base": topic.base,
        "files": [_file_json(file) for file in topic.files],
        "schemas": schemas
        and {
            "key_id": schemas.key_id,
            "key": schemas.key,
            "writers": [list(writer) for writer in schemas.writers.items()],
            "reader_id": schemas.reader_id,
        },
    }


def _topic(raw: Mapping[str, Any]) -> ArchivedTopic:
    schemas = raw["schemas"]
    return ArchivedTopic(
        topic_id=raw["topic_id"],
        starts=tuple(raw["starts"]),
        ends=tuple(raw["ends"]),
        base=raw["base"],
        files=tuple(ArchivedFile(*file) for file in raw["files"]),
        schemas=schemas
        and ArchivedSchemas(
            key_id=schemas["key_id"],
            key=schemas["key"],
            writers={int(number): text for number, text in schemas["writers"]},
            reader_id=schemas["reader_id"],
        ),
    )


def require_chain(segments: Sequence[tuple[str, bytes, Segment]]) -> None:
    """Require that manifests follow each other, and that the files of each topic have no hole.

    `segments`: for each its name, its bytes and its content, in the order of their names.

    Raises ArchiveError: one is missing, or another than the one that its successor names.
    """
    before = ""
    ends: dict[str, ArchivedTopic] = {}
    for number, (name, data, segment) in enumerate(segments, start=1):
        if segment.number != number:
            raise ArchiveError(f"the manifest {number:08d}.json is missing, before {name}")
        if segment.before != before:
            raise ArchiveError(f"the manifest before {name} is another than the one it names")
        before = hashlib.sha256(data).hexdigest()
        for topic, part in segment.topics.items():
            _require_tiled(name, topic, part, None if part.base else ends.get(topic))
        ends = dict(segment.topics)


def _require_tiled(name: str, topic: str, part: ArchivedTopic, last: ArchivedTopic | None) -> None:
    where = f'the manifest {name}, topic "{topic}"'
    if not part.base:
        going_on = None if last is None else (*last.ends, *[0] * (len(part.ends) - len(last.ends)))
        if last is None or going_on != part.starts or last.topic_id != part.topic_id:
            raise ArchiveError(f"{where}: it does not begin where the segment before ended")
    places = list(part.starts)
    for file in part.files:
        if not places[file.partition] == file.start < file.end <= part.ends[file.partition]:
            raise ArchiveError(f"{where}: file {file.name} leaves a hole, or overlaps another")
        places[file.partition] = file.end
