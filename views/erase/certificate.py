"""Certificates of erasures: which places were looked at, how, and what nobody here can reach.

The keys are in it as digests under a secret that is told once, to who asked for the erasure: with
it he can show that a certificate is of his key, and nobody else can try keys until one fits.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from changelog.attestation.envelope import Signer, sealed
from changelog.attestation.file import StatementFile, check_new, write_new
from changelog.attestation.statement import altered, canonical, written
from changelog.contract.base.errors import ConfigurationError, RefutedError
from changelog.runtime.edge import print_json

KIND = "urn:changelog-store:erasure:1"
SUBJECT = "changelogErasure1"
"""Name of the subject's digest: the SHA-256 of the canonical bytes of these facts."""
OF_SUBJECT = ("table", "topic", "topic_id", "keys")
MEANING = (
    "When this was written the named places had no record and no row of the keys, and nothing that "
    "was made of one is served or kept there. It says nothing of the places under out_of_reach."
)
OUT_OF_REACH: Mapping[str, str] = {
    "source": "PostgreSQL of the table: dead rows until VACUUM, WAL and its archive, standbys, "
    "backups, statistics, files that a slot has spilled, the server's log",
    "brokers": "replicas of the topic's partitions, which each broker cleans by itself, tiered "
    "storage, mirrors, snapshots of disks",
    "other logs": "other captures of the table, the topic before a change of prefix, messages of "
    "the application, files that capture writes",
    "other archives": "archives of the log at other places, and earlier versions of files in "
    "stores that keep them",
    "other projects": "warehouses, checkpoints and views of other projects, and what the Python "
    "API was given",
    "copies": "targets of changelog load, publish, connectors and other programs that read topics "
    "or views",
    "sinks": "WAL, standbys and backups of the PostgreSQL that serves views, and its statistics "
    "where a view says postgres_statistics_rewritten false; files and replicas of the "
    "cache; indexes and SQL views of your own",
    "readers": "what readers have copied, and pages that show it",
    "other rows": "rows of other tables that mention the key, and values that were computed of the "
    "rows and stored by others; in views of this project they are computed anew",
    "certificates": "certificates of generations: a digest of few rows can confirm a guess",
    "this machine": "temporary files of runs that were killed, swap, logs of programs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place that was looked at and has nothing of the keys."""

    kind: str  # `source`, `topic`, `archive`, `view` or `kept`
    name: str
    how: str  # it was looked at, in words
    looked_at: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that a certificate states."""

    table: str
    topic: str
    topic_id: str
    lsn: str  # of the source, behind the deletes
    keys: Sequence[str]  # digests under the secret
    places: Sequence[Place]
    out_of_reach: Mapping[str, str]

    def predicate(self) -> dict[str, Any]:
        """Return them as the predicate."""
        return {
            "meaning": MEANING,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            **asdict(self),
            "engines": {
                "python": platform.python_version(),
                "changelog-store": version("changelog-store"),
            },
        }


def check_file(path: Path) -> None:
    """Check that a certificate can be written to a file.

    Raises ConfigurationError: it is there already, or would not be known by its name.
    """
    if path.suffix != ".json":
        raise ConfigurationError(
            f"--certificate {path} does not end with .json, by which `changelog verify` knows a "
            "certificate"
        )
    check_new(path)


def write(path: Path, facts: Facts, signer: Signer | None) -> None:
    """Write a certificate.

    Raises SinkError: it cannot be written.
    """
    predicate = facts.predicate()
    subject = {"name": facts.table, "digest": {SUBJECT: _digest(predicate)}}
    write_new(path, sealed(written(KIND, [subject], predicate), signer))


def _digest(predicate: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({name: predicate[name] for name in OF_SUBJECT})).hexdigest()


def is_erasure(file: StatementFile) -> bool:
    """Tell whether a certificate is of an erasure."""
    return file.statement.kind == KIND


def show_erasures(files: Sequence[StatementFile], *, as_json: bool = False) -> None:
    """Print certificates of erasures whose bytes and signatures are checked.

    Raises RefutedError: one lacks a fact, or its subject is another.
    """
    for file in files:
        facts = file.statement.predicate
        try:
            (subject,) = file.statement.statement["subject"]
            is_subject = subject["digest"][SUBJECT] == _digest(facts)
            lines = [
                f"holds: a certificate of an erasure, made {facts['made']} ({file.path})",
                f"  {file.signature}",
                f"  {len(facts['keys'])} keys of {facts['table']}",
                *(
                    f"  {place['kind']} {place['name']}: {place['result']}"
                    for place in facts["places"]
                ),
                "  it tells of that time; out of reach: " + ", ".join(facts["out_of_reach"]),
            ]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise altered(str(file.path), f"it lacks a fact: {error!r}") from error
        if not is_subject:
            raise RefutedError(f"{file.path} is altered: its subject is another")
        if as_json:
            print_json(
                {
                    "certificate": str(file.path),
                    "sha256": file.statement.sha256,
                    "signed": file.signed,
                    "signature_checked": file.checked_key,
                    "erasure": dict(facts),
                }
            )
        else:
            print("\n".join(line if line.isprintable() else ascii(line) for line in lines))
