"""Checkpoints: the folded state of a topic at a frontier, in Delta tables under the warehouse.

    {root}/{topic}/manifest         one row per checkpoint, replaced in one commit each time
    {root}/{topic}/layers/{id}      a Delta table of records, written once

A checkpoint is a list of layers. The first, its base, holds the last record of each live key; each
further one the last record of each key that was touched since, tombstones among them. A record is
stored as it is on the log, so that it is decoded by the schemas of a later reader.

A layer that no manifest names does not exist: it is written first, then the log is checked again
for whether the read was exact, and only then the manifest's commit makes the layer count. A run
that is killed in between leaves a folder that `unnamed` finds. How far a layer goes is given by the
frontier's ends, which are written in the same commit, so no record is taken twice or left out.

The manifest is written with deltalake, in milliseconds. Two runs that advance one topic at the
same time conflict in that commit; the second one fails and nothing of it counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from changelog.contract.base.errors import LogError, UnavailableError
from changelog.contract.base.position import Position
from changelog.contract.base.secret import redacted
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.schema import SchemaPin
from changelog.runtime.stores import of_deltalake
from replay.spark.warehouse import SETTINGS, read_rows, tidy
from replay.verdict.increment import StoredBase

FOLDER = "_checkpoints"
FORMAT = 1
"""Of `Checkpoint.to_json`; a checkpoint of another format is refused."""
GRACE = timedelta(minutes=10)
"""How long replaced checkpoints stay, for a run that is reading them."""
YOUNG = timedelta(days=1)
"""A layer without a manifest may still be in writing for so long after its name was chosen."""
_SCHEMA = pa.schema([("number", pa.int64()), ("checkpoint", pa.string())])


class CheckpointError(LogError):
    """A checkpoint cannot be read or written; without checkpoints a rebuild still works."""


class CheckpointConflictError(CheckpointError, UnavailableError):
    """Another run advanced the checkpoint of the same topic in the meantime."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One Delta table of a checkpoint."""

    name: str  # of its folder
    rows: int  # how many records it holds
    tombstones: int = 0  # how many of these are tombstones
    since: Position | None = None  # the first position that its records can have
    # the first position behind its records; both are None for a base, and in old manifests
    until: Position | None = None


def _layer_json(layer: Layer) -> list[Any]:
    places = (layer.since, layer.until)
    return [layer.name, layer.rows, layer.tombstones, *(place and str(place) for place in places)]


def _layer(raw: Sequence[Any]) -> Layer:
    """Parse the output of `_layer_json`, also of versions that did not store positions."""
    name, rows, tombstones, *places = raw
    return Layer(name, rows, tombstones, *(place and Position.parse(place) for place in places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a topic at a frontier."""

    topic: str  # its name
    base: StoredBase  # the frontier, and the facts that limit how long the log leads on from it
    layers: tuple[Layer, ...]  # the base layer first, then the later ones, oldest first
    founded: Frontier  # the frontier of the base layer; keys deleted before it are not known
    # the frontier up to which layers were folded into one; a key's older records between the base
    # and that are not known
    folded: Frontier
    at: datetime  # when it was made

    @property
    def frontier(self) -> Frontier:
        """Return the frontier that the state is true at."""
        return self.base.record.frontier

    def layers_since(self, position: Position) -> list[Layer] | None:
        """Return the layers from a position on, or None if one of them also holds earlier records.

        `position`: from the founding of the checkpoint on.
        """
        behind = [layer for layer in self.layers[1:] if layer.rows]
        after = [layer for layer in behind if layer.until is None or layer.until > position]
        is_known = all(layer.since is not None and layer.since >= position for layer in after)
        return after if is_known else None

    def to_json(self) -> str:
        """Return the checkpoint as the manifest stores it."""
        return json.dumps(
            {
                "format": FORMAT,
                "topic": self.topic,
                "frontier": self.frontier.to_json(),
                "offset": self.base.record.offset,
                "appended_ms": self.base.record.appended_ms,
                "lag_ms": self.base.lag_ms,
                "retention_ms": self.base.retention_ms,
                "pin": [self.base.pin.key, self.base.pin.value],
                "layers": [_layer_json(layer) for layer in self.layers],
                "founded": self.founded.to_json(),
                "folded": self.folded.to_json(),
                "at": self.at.isoformat(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`."""
        raw: dict[str, Any] = json.loads(text)
        if raw.get("format") != FORMAT:
            raise CheckpointError(
                f"a checkpoint has format {raw.get('format')}, this program writes {FORMAT}",
                hint=f"remove the folder {FOLDER} of the warehouse; it is made again",
            )
        record = FrontierRecord(
            Frontier.from_json(raw["frontier"]), raw["offset"], raw["appended_ms"]
        )
        base = StoredBase(
            record=record,
            lag_ms=raw["lag_ms"],
            retention_ms=raw["retention_ms"],
            pin=SchemaPin(*raw["pin"]),
        )
        return cls(
            topic=raw["topic"],
            base=base,
            layers=tuple(map(_layer, raw["layers"])),
            founded=Frontier.from_json(raw["founded"]),
            folded=Frontier.from_json(raw["folded"]),
            at=datetime.fromisoformat(raw["at"]),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The checkpoints of a topic at one version of its manifest."""

    checkpoints: tuple[Checkpoint, ...] = ()  # oldest first
    version: int = -1  # of the manifest's table; -1 when there is none yet


class CheckpointStore:
    """The checkpoints of a warehouse; needs no Spark."""

    def __init__(self, warehouse: str) -> None:
        """Open the checkpoints; `warehouse` is an absolute path or URI without a closing slash."""
        self._root = f"{warehouse}/{FOLDER}"

    def layers_of(self, topic: str) -> str:
        """Return the folder of a topic's layers."""
        return f"{self._root}/{topic}/layers"

    def layer(self, topic: str, name: str) -> str:
        """Return the path or URI of a layer."""
        return f"{self.layers_of(topic)}/{name}"

    def new_layer(self) -> str:
        """Return a new name for a layer; names sort by the time when they were chosen."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"

    def manifest(self, topic: str) -> Manifest:
        """Read the checkpoints of a topic.

        Raises CheckpointError: they are there and cannot be read.
        """
        try:
            table = DeltaTable(self._place(topic))
            rows = read_rows(table).sort_by("number").column("checkpoint").to_pylist()
        except TableNotFoundError:
            return Manifest()
        except (DeltaError, OSError) as error:
            raise self._failed(topic, "read", error) from error
        return Manifest(tuple(Checkpoint.from_json(row) for row in rows), table.version())

    def newest(self, topic: str) -> Checkpoint | None:
        """Return the last checkpoint of a topic."""
        return next(reversed(self.manifest(topic).checkpoints), None)

    def seal(self, checkpoint: Checkpoint, before: Manifest, keep: Sequence[Checkpoint]) -> None:
        """Seal a checkpoint in one commit.

        `before`: the manifest that it was made from. `keep`: the older ones that stay.

        Raises CheckpointConflictError: another run has advanced the topic since `before`;
        CheckpointError: it cannot be written.
        """
        place = self._place(checkpoint.topic)
        if self.manifest(checkpoint.topic).version != before.version:
            raise self._conflict(checkpoint.topic)
        rows = [sealed.to_json() for sealed in (*keep, checkpoint)]
        table = pa.table({"number": list(range(len(rows))), "checkpoint": rows}, schema=_SCHEMA)
        metadata = {"frontier": checkpoint.frontier.to_json()}
        try:
            write_deltalake(
                place,
                table,
                mode="error" if before.version < 0 else "overwrite",
                configuration=SETTINGS,
                commit_properties=CommitProperties(custom_metadata=metadata),
            )
        except CommitFailedError as error:
            raise self._conflict(checkpoint.topic) from error
        except (DeltaError, OSError) as error:
            if "already exists" in str(error):
                raise self._conflict(checkpoint.topic) from error
            raise self._failed(checkpoint.topic, "written", error) from error

    def tidy(self, topic: str, *, hours: int) -> None:
        """Remove files that older versions of a manifest used, after some hours."""
        try:
            tidy(DeltaTable(self._place(topic)), hours)
        except (DeltaError, OSError) as error:
            raise self._failed(topic, "tidied", error) from error

    def _place(self, topic: str) -> str:
        return of_deltalake(f"{self._root}/{topic}/manifest")

    def _conflict(self, topic: str) -> CheckpointConflictError:
        return CheckpointConflictError(
            f'another run advanced the checkpoint of topic "{topic}" at the same time',
            hint="run it again",
        )

    def _failed(self, topic: str, action: str, error: Exception) -> CheckpointError:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return CheckpointError(
            f"the checkpoint {redacted(self._place(topic))} cannot be {action}: {redacted(line)}",
            hint=f"if it is broken, remove the folder {FOLDER} of the warehouse; it is made again",
        )


def unnamed(manifest: Manifest, there: Iterable[str], *, now: datetime) -> list[str]:
    """Return the layers that killed runs left: named by no checkpoint, and not recent."""
    named = {layer.name for checkpoint in manifest.checkpoints for layer in checkpoint.layers}
    limit = f"{(now - YOUNG).astimezone(UTC):%Y%m%dT%H%M%S}"
    return sorted(name for name in there if name not in named and name < limit)


def kept(checkpoints: Sequence[Checkpoint], *, now: datetime, days: int) -> list[Checkpoint]:
    """Return the older checkpoints that stay: all of the last minutes, one an hour, one a day.

    Those of the last minutes stay for runs that are reading them, the others for `--as-of`.

    `checkpoints`: of one topic, oldest first. `days`: how long the daily ones stay.
    """
    last: dict[object, Checkpoint] = {}
    for checkpoint in checkpoints:
        age, at = now - checkpoint.at, checkpoint.at.astimezone(UTC)
        if age < GRACE:
            last[checkpoint.at] = checkpoint
        elif age < timedelta(days=1):
            last[at.date(), at.hour] = checkpoint
        elif age < timedelta(days=days):
            last[at.date()] = checkpoint
    return [
        checkpoint for checkpoint in checkpoints if any(checkpoint is one for one in last.values())
    ]
