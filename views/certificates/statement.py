"""The document of a certificate: an in-toto Statement with a predicate of our own. Pure.

Its bytes are canonical: JSON with sorted names, two blanks an indent, nothing escaped that need not
be, and a line feed at the end. `checksum` is the SHA-256 of these bytes with an empty `checksum`,
so each changed byte shows without a signature too. The next certificate of the view names the
SHA-256 of the whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changelog.contract.base.errors import RefutedError

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:changelog-store:certificate:1"
ALGORITHM = "changelogRows1"
"""Name of the digest of rows in docs/certificate.md, in subjects and in the predicate."""

Ranges = Mapping[str, tuple[int, str]]
"""Of each key range that has rows: their number and their digest."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as it was written."""

    content: bytes  # the statement
    statement: Mapping[str, Any]  # the same, parsed

    @property
    def sha256(self) -> str:
        """Return the digest by which the next certificate names this one."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def predicate(self) -> Mapping[str, Any]:
        """Return the facts that it states."""
        predicate: Mapping[str, Any] = self.statement["predicate"]
        return predicate

    @property
    def view(self) -> str:
        """Return the view's name."""
        return str(self.predicate["view"])

    @property
    def generation(self) -> int:
        """Return the number of the generation."""
        return int(self.predicate["generation"])

    @property
    def previous(self) -> str | None:
        """Return the digest of the certificate before it, or None for the first of a view."""
        before = self.predicate["previous"]
        return None if before is None else str(before["sha256"])

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return names and types of the columns, in the order of the digest."""
        return [(c["name"], c["type"]) for c in self.predicate["definition"]["columns"]]

    @property
    def key(self) -> list[str]:
        """Return the names of the key's columns."""
        return list(self.predicate["definition"]["key"])

    def ranges_of(self, sink: str) -> Ranges:
        """Return the digests of the rows that a sink served, by key range."""
        (entry,) = [entry for entry in self.predicate["sinks"] if entry["sink"] == sink]
        return {part["range"]: (part["rows"], part["digest"]) for part in entry["ranges"]}


def sink_entry(sink: str, location: Mapping[str, str], ranges: Ranges) -> dict[str, Any]:
    """Return the facts about the rows in one sink."""
    return {
        "sink": sink,
        "location": dict(location),
        "rows": sum(count for count, _ in ranges.values()),
        "digest": added(ranges),
        "ranges": [
            {"range": place, "rows": count, "digest": digest}
            for place, (count, digest) in sorted(ranges.items())
        ],
    }


def added(ranges: Ranges) -> str:
    """Return the digest of all rows from the digests of the key ranges."""
    return f"{sum(int(digest, 16) for _, digest in ranges.values()) % 2**256:064x}"


def written(predicate: Mapping[str, Any]) -> bytes:
    """Return the statement of a predicate that has all but its checksum."""
    subjects = [
        {
            "name": f"{predicate['view']}/{predicate['generation']}/{entry['sink']}",
            "digest": {ALGORITHM: entry["digest"]},
        }
        for entry in predicate["sinks"]
    ]
    statement = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {**predicate, "algorithm": ALGORITHM, "checksum": ""},
    }
    return _bytes(_with_checksum(statement, _checksum(statement)))


def parsed(content: bytes, name: str) -> Certificate:
    """Read a statement.

    Raises RefutedError: it is none of ours, or a byte of it was changed since it was written.
    """
    try:
        statement = json.loads(content)
        kinds = statement["_type"], statement["predicateType"]
        checksum = statement["predicate"]["checksum"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _altered(name, "it is no statement") from error
    if kinds != (STATEMENT, PREDICATE):
        raise _altered(name, f"it is a {kinds[0]} of {kinds[1]}")
    if _bytes(statement) != content:
        raise _altered(name, "it is written in another form")
    if _checksum(statement) != checksum:
        raise _altered(name, "its checksum is another")
    certificate = Certificate(content, statement)
    try:
        _check_sums(certificate, name)
    except (KeyError, TypeError, ValueError) as error:
        raise _altered(name, f"it lacks a fact: {error!r}") from error
    return certificate


def _check_sums(certificate: Certificate, name: str) -> None:
    """Require that the digests and rows of the key ranges add up to the totals."""
    sinks: Sequence[Mapping[str, Any]] = certificate.predicate["sinks"]
    subjects = [subject["digest"][ALGORITHM] for subject in certificate.statement["subject"]]
    for entry, subject in zip(sinks, subjects, strict=True):
        ranges = certificate.ranges_of(entry["sink"])
        whole = sink_entry(entry["sink"], entry["location"], ranges)
        if whole != dict(entry) or subject != entry["digest"]:
            raise _altered(name, f"the digests of {entry['sink']} do not add up")
    _ = certificate.view, certificate.generation, certificate.previous, certificate.columns
    _ = certificate.key


def _altered(name: str, why: str) -> RefutedError:
    return RefutedError(
        f"{name} is altered, or no certificate: {why}",
        hint="take the file that was written, below _certificates in the warehouse",
    )


def _checksum(statement: Mapping[str, Any]) -> str:
    return hashlib.sha256(_bytes(_with_checksum(statement, ""))).hexdigest()


def _with_checksum(statement: Mapping[str, Any], checksum: str) -> dict[str, Any]:
    return {**statement, "predicate": {**statement["predicate"], "checksum": checksum}}


def _bytes(statement: Mapping[str, Any]) -> bytes:
    text = json.dumps(statement, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()
