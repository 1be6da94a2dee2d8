"""Checks certificates again: the documents, their chain, and the rows that sinks serve now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from changelog.attestation.file import StatementFile
from changelog.contract.base.errors import RefutedError, SinkError
from views.certificates.certify import served_ranges
from views.certificates.statement import Certificate, Ranges
from views.certificates.store import CertificateStore
from views.generations.served import Served


@dataclass(slots=True, kw_only=True)
class CertificateReport:
    """The outcome of checking one certificate."""

    file: StatementFile
    certificate: Certificate
    problems: list[str] = field(default_factory=list)
    sinks: list[str] = field(default_factory=list)  # whose rows were compared and are equal
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {
            "certificate": str(self.file.path),
            "view": self.certificate.view,
            "generation": self.certificate.generation,
            "sha256": self.certificate.sha256,
            "verified": not self.problems,
            "signed": self.file.signed,
            "signature_checked": self.file.checked_key,
            "sinks": self.sinks,
            "problems": self.problems,
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """Return the report for people."""
        word = "differs" if self.problems else "holds"
        certificate = self.certificate
        rows = ", ".join(self.sinks)
        lines = [
            f"{word}: {certificate.view}, generation {certificate.generation} ({self.file.path})",
            f"  {self.file.signature}",
            *([f"  rows equal in {rows}"] if rows else []),
        ]
        return [*lines, *(f"  {text}" for text in (*self.problems, *self.notes))]


def check_chain(certificates: Sequence[Certificate]) -> list[tuple[int, str]]:
    """Return the breaks between certificates of one view: places in the list and reasons.

    They come by generation, oldest first. The first may name one that is not among them.
    """
    breaks = []
    for place, (before, after) in enumerate(pairwise(certificates), 1):
        if after.previous != before.sha256:
            names = after.previous or "none before it"
            text = (
                f"broken chain: the certificate of generation {after.generation} names "
                f"{names[:16]}, and that of generation {before.generation} is {before.sha256[:16]}"
            )
            breaks.append((place, text))
    return breaks


def check_store(report: CertificateReport, store: CertificateStore) -> None:
    """Compare a certificate and its chain with the files that the warehouse has."""
    own, generations = report.certificate, store.generations()
    if own.generation not in generations:
        report.problems.append("the warehouse has no certificate of this generation")
        return
    try:
        chain = [store.read(number) for number in generations]
    except RefutedError as error:
        report.problems.append(f"broken chain: {error.args[0]}")
        return
    (kept,) = [link for link in chain if link.generation == own.generation]
    if kept.sha256 != own.sha256:
        report.problems.append(
            f"another document: the warehouse has {kept.sha256[:16]} for this generation, "
            f"and the file is {own.sha256[:16]}"
        )
    if chain[0].previous is not None:
        report.problems.append(
            f"broken chain: the certificate before generation {chain[0].generation} is gone"
        )
    report.problems += [text for _, text in check_chain(chain)]


def check_rows(report: CertificateReport, served: Served) -> None:
    """Compare the rows that the sinks of a view serve now with a certificate.

    Raises SinkError: a sink does not answer.
    """
    certificate = report.certificate
    certified = [str(entry["sink"]) for entry in certificate.predicate["sinks"]]
    report.notes += [
        f"{name} has no part in the certificate" for name in served.sinks if name not in certified
    ]
    for name in certified:
        sink = served.sinks.get(name)
        if sink is None:
            report.problems.append(f"{name} is no sink of the view any more")
            continue
        serving = sink.published()
        if serving != certificate.generation:
            now = "nothing" if serving is None else f"generation {serving}"
            report.problems.append(
                f"other generation: {name} serves {now}, and the certificate is of generation "
                f"{certificate.generation}"
            )
            continue
        try:
            address = sink.address(certificate.generation).as_read()
            now_ranges = served_ranges(address, certificate.columns, certificate.key)
        except SinkError as error:
            report.problems.append(f"{name} cannot be read as it was written: {error.args[0]}")
            continue
        differing = differing_ranges(certificate.ranges_of(name), now_ranges)
        if differing:
            report.problems += [f"rows differ in {name}, {text}" for text in differing]
        else:
            report.sinks.append(name)


def differing_ranges(certified: Ranges, served: Ranges) -> list[str]:
    """Return a line for each key range that differs from the certificate."""
    lines = []
    for place in sorted({*certified, *served}):
        (before, _), (now, _) = certified.get(place, (0, "")), served.get(place, (0, ""))
        if certified.get(place) != served.get(place):
            lines.append(f"key range {place}: {before:,} rows in the certificate, {now:,} served")
    return lines
