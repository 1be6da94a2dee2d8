"""Records of the lease topic: claim, renew, release."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Self

import psutil

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.secret import redacted


class LeaseStep(Enum):
    """The kind of a record."""

    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"


def _command(argv: Sequence[str]) -> str:
    """Return a command line without secrets, and without the keys of rows that are erased."""
    words = [Path(argv[0]).name, *argv[1:]]
    for place, word in enumerate(words):
        if word.startswith("--key="):
            words[place] = "--key=***"
        elif place and words[place - 1] == "--key":
            words[place] = "***"
    return redacted(shlex.join(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process, for people: nothing is decided by it."""

    host: str  # the machine's name
    pid: int  # the number of the process
    started: str  # when the process began, by its own clock
    command: str  # its command line, without secrets

    @classmethod
    def this_process(cls) -> Self:
        """Return this process."""
        began = datetime.fromtimestamp(psutil.Process().create_time(), UTC)
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            started=began.isoformat(timespec="seconds"),
            command=_command(sys.argv),
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read an owner.

        Raises KeyError: a field is missing.
        """
        return cls(
            host=str(value["host"]),
            pid=int(value["pid"]),
            started=str(value["started"]),
            command=str(value["command"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields by their names."""
        return {name: getattr(self, name) for name in ("pid", "host", "started", "command")}

    def __str__(self) -> str:
        """Return the owner as text for an error."""
        return f"process {self.pid} on {self.host} since {self.started}, `{self.command}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """One record's value."""

    step: LeaseStep  # what it does
    seen: int  # the last offset of the topic that its writer had read, -1 for none
    ttl_ms: int  # how long the lease lasts from this record on
    owner: Owner  # who wrote it
    # a folder of local locks on one machine, empty where the machine cannot be told
    place: str = ""
    building: tuple[int, ...] = ()  # the generations that its writer builds
    unremoved: tuple[int, ...] = ()  # generations of earlier holders that nobody has removed

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        value = {
            "step": self.step.value,
            "seen": self.seen,
            "ttl_ms": self.ttl_ms,
            "owner": self.owner.to_json(),
            "place": self.place,
            "building": self.building,
            "left": self.unremoved,
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read a lease from its record."""
        try:
            value = json.loads(raw)
            return cls(
                step=LeaseStep(value["step"]),
                seen=int(value["seen"]),
                ttl_ms=int(value["ttl_ms"]),
                owner=Owner.from_json(value["owner"]),
                place=str(value["place"]),
                building=tuple(map(int, value["building"])),
                unremoved=tuple(map(int, value["left"])),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRecordError(
                f"a record on the topic of the locks is none of ours: {error}",
                hint='who else writes there? [rebuild] lock = "local" goes without the topic',
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A record on the topic."""

    offset: int  # where it lies
    at_ms: int  # when the brokers took it, by their clock
    lock: str  # what it is about
    id: str  # the claim that it belongs to; its key is both
    record: LeaseRecord | None  # its value, None where the claim was taken back or cleared up


def key_of(lock: str, claim: str) -> bytes:
    """Return the key of a claim's records."""
    return f"{lock}/{claim}".encode()


def split_key(key: bytes) -> tuple[str, str]:
    """Return the lock and the claim of a key."""
    lock, _, claim = key.decode("utf-8", "replace").rpartition("/")
    return lock, claim
