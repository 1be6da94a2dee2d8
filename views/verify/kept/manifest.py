"""The manifest of a kept state: its files, their digests, and the frontier it was proved at. Pure.

The manifest has a digest of itself, and one of each file. They detect accidental changes; a person
who can write here can also change both on purpose, as he can change the served rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from changelog.contract.base.errors import ChangelogError
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.schema import SchemaPin
from views.verify.kept.judgement import Cleaning, Proved, SchemaReading

FORMAT = 1


class BrokenError(Exception):
    """A kept state is not what was written, or of another format; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """A Parquet file of rows."""

    name: str  # in the folder of its topic
    rows: int  # how many; of a layer the keys that it touches, deleted ones too
    sha256: str  # of its bytes
    inexact: tuple[str, ...] = ()  # the columns that may hold a value that their type cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofManifest:
    """A kept state."""

    proved: Proved  # the description of the state
    base: KeptFile  # the rows of all keys, once
    layers: tuple[KeptFile, ...]  # the rows of keys that were touched since, oldest first
    records: int  # how many were read for it, from the topic's start on
    begun: str  # the LSN at which the topic was last read from its start

    @property
    def files(self) -> tuple[KeptFile, ...]:
        """Return all its files."""
        return (self.base, *self.layers)

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        proved = self.proved
        kept = {
            "topic": proved.topic,
            "frontier": proved.frontier.to_json(),
            "appended_ms": proved.appended_ms,
            "cleaning": asdict(proved.cleaning),
            "reading": asdict(proved.reading),
            "base": asdict(self.base),
            "layers": [asdict(layer) for layer in self.layers],
            "records": self.records,
            "begun": self.begun,
        }
        return json.dumps({"format": FORMAT, "sha256": _digest(kept), "kept": kept}, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Parse the output of `to_json`."""
        try:
            raw: dict[str, Any] = json.loads(text)
            if raw["format"] != FORMAT:
                raise BrokenError(f"its format is {raw['format']}, this program's is {FORMAT}")
            kept = raw["kept"]
            if raw["sha256"] != _digest(kept):
                raise BrokenError("its manifest was changed")
            reading = kept["reading"]
            return cls(
                proved=Proved(
                    topic=kept["topic"],
                    frontier=Frontier.from_json(kept["frontier"]),
                    appended_ms=kept["appended_ms"],
                    cleaning=Cleaning(**kept["cleaning"]),
                    reading=SchemaReading(
                        pin=_pin(**reading["pin"]),
                        schema=reading["schema"],
                        program=reading["program"],
                    ),
                ),
                base=_file(kept["base"]),
                layers=tuple(map(_file, kept["layers"])),
                records=kept["records"],
                begun=kept["begun"],
            )
        except (ChangelogError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BrokenError(f"its manifest cannot be read: {error!r}") from error


def _pin(key: int | None, value: int, choices: Sequence[Sequence[str]] = ()) -> SchemaPin:
    return SchemaPin(key, value, tuple((column, choice) for column, choice in choices))


def _file(raw: dict[str, Any]) -> KeptFile:
    return KeptFile(**{**raw, "inexact": tuple(raw["inexact"])})


def _digest(kept: dict[str, Any]) -> str:
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
