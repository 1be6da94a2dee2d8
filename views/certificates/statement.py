"""The statement of a certificate: the facts about one published generation. Pure.

The next certificate of the view names the SHA-256 of its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changelog.attestation import statement
from changelog.attestation.statement import Statement, altered

PREDICATE = "urn:changelog-store:certificate:1"
ALGORITHM = "changelogRows1"
"""Name of the digest of rows in docs/certificate.md, in subjects and in the predicate."""

Ranges = Mapping[str, tuple[int, str]]
"""Of each key range that has rows: their number and their digest."""


@dataclass(frozen=True, slots=True)
class Certificate(Statement):
    """A certificate as it was written."""

    @classmethod
    def of(cls, read: Statement, name: str) -> Certificate:
        """Return a statement as a certificate of a view.

        Raises RefutedError: it is about something else, or its digests do not add up.
        """
        if read.kind != PREDICATE:
            raise altered(name, f"it is a {read.kind}")
        certificate = cls(read.content, read.statement)
        try:
            _check_sums(certificate, name)
        except (KeyError, TypeError, ValueError) as error:
            raise altered(name, f"it lacks a fact: {error!r}") from error
        return certificate

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
    return statement.written(PREDICATE, subjects, {**predicate, "algorithm": ALGORITHM})


def _check_sums(certificate: Certificate, name: str) -> None:
    """Require that the digests and rows of the key ranges add up to the totals."""
    sinks: Sequence[Mapping[str, Any]] = certificate.predicate["sinks"]
    subjects = [subject["digest"][ALGORITHM] for subject in certificate.statement["subject"]]
    for entry, subject in zip(sinks, subjects, strict=True):
        ranges = certificate.ranges_of(entry["sink"])
        whole = sink_entry(entry["sink"], entry["location"], ranges)
        if whole != dict(entry) or subject != entry["digest"]:
            raise altered(name, f"the digests of {entry['sink']} do not add up")
    _ = certificate.view, certificate.generation, certificate.previous, certificate.columns
    _ = certificate.key
