"""Take the records of some keys out of an archive: files are rewritten without them.

New files first, then one erasure that says what stands in whose place, which is written in one
step; then the old files are removed. A run that is killed before that step has changed nothing, one
that is killed behind it leaves old files that nobody names, which the next one removes.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.rows.codec import FRAME_BYTES
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.archive.copy import newest_schemas
from replay.archive.manifest import ArchivedErasure, ArchivedFile, ArchiveError
from replay.archive.store import Archive


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedFiles:
    """The part of an archive that was read for some keys."""

    files: int  # all that have records of the topic
    written: int  # how many of these were written anew
    records: int  # how many records are gone


def erase(
    archive: Archive,
    topic: str,
    bodies: Collection[bytes],
    *,
    key_schema: str,
    steps: Steps = UNSEEN,
) -> ErasedFiles:
    """Remove all records of some keys, tombstones too, from the files of a topic.

    `bodies`: the keys without the frame that names their schema. `key_schema`: the schema by which
    they were encoded.

    Raises:
        ArchiveError: a file is missing or was altered, or has keys of another schema.
        LockedError: another process erases in the same archive.
        UnavailableError: the store does not answer.
    """
    segments = archive.segments()
    archived = newest_schemas(segments).get(topic)
    if archived is not None and archived.key != key_schema:
        raise ArchiveError(
            f'the archive has keys of another schema in topic "{topic}"',
            hint="the key of the table was changed: archive to another place and remove this one",
        )
    files = [file for s in segments if topic in s.topics for file in s.topics[topic].files]
    erasures = archive.erasures()
    number = len(erasures) + 1
    steps.more(len(files))
    instead: dict[str, ArchivedFile] = {}
    records = 0
    for file in files:
        steps.begin(file.name)
        table = archive.table(file)
        is_erased = of_keys(table, bodies)
        if count := pc.sum(is_erased).as_py() or 0:
            name = f"{file.name.removesuffix('.parquet')}-e{number}-{uuid.uuid4().hex[:8]}.parquet"
            kept = table.filter(pc.invert(is_erased))
            instead[file.name] = archive.write(name, kept, (file.partition, file.start, file.end))
            records += count
        steps.done()
    if instead:
        before = hashlib.sha256(erasures[-1].to_bytes()).hexdigest() if erasures else ""
        at = datetime.now(UTC)
        archive.commit(
            ArchivedErasure(number=number, before=before, at=at, topic=topic, files=instead)
        )
    archive.remove_superseded()
    return ErasedFiles(files=len(files), written=len(instead), records=records)


def remaining(archive: Archive, topic: str, bodies: Collection[bytes]) -> int:
    """Return the number of records of some keys in all archived files of a topic.

    Raises ArchiveError: a file is missing or was altered.
    """
    return sum(
        pc.sum(of_keys(archive.table(file), bodies)).as_py() or 0
        for segment in archive.segments()
        if topic in segment.topics
        for file in segment.topics[topic].files
    )


def of_keys(table: pa.Table, bodies: Collection[bytes]) -> pa.Array:
    """Tell of each record whether its key is one of some keys, whatever its schema's id is."""
    keys = table["key"].to_pylist()
    return pa.array([key is not None and key[FRAME_BYTES:] in bodies for key in keys], pa.bool_())
