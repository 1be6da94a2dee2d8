"""Certificates of comparisons: which two were compared, when, how, and the verdict.

Two sides that are written have no single state, so a certificate is a signed account and has no
digest by which rows could be checked later. It has no values of rows, keys included: they may be
secret, and digests of a few known keys would not hide them. Its subject's digest is of the words
that say which two were compared, so certificates of the same comparison have the same subject.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from changelog.attestation.envelope import KeyFile, Signer, sealed
from changelog.attestation.file import check_new, write_new
from changelog.attestation.statement import canonical, written
from changelog.compare.options import CopyOptions
from changelog.compare.postgres import PostgresSide
from changelog.compare.report import Report
from changelog.compare.side import Side
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted

KIND = "urn:changelog-store:comparison:1"
SUBJECT = "changelogComparison1"
"""Name of the subject's digest: the SHA-256 of the canonical bytes of these facts."""
OF_SUBJECT = ("source", "target", "key", "columns")
MEANING = (
    "An account of one comparison, while both sides may have been written. It has no digest of "
    "rows: to know whether they are equal now, compare again."
)
_ENGINES = ("changelog-store", "duckdb")
_USER = re.compile(r"://[^/@\s]*@")
_PARAMETERS = re.compile(r"(://[^?\s]*)\?\S*")


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """The two sides of a comparison."""

    source: PostgresSide
    target: Side
    kind: str  # of the target: postgres, parquet, …
    query: str = ""  # of the source, if it is no table

    def facts(self) -> dict[str, Any]:
        """Return the facts that say which two they are."""
        query = hashlib.sha256(self.query.encode()).hexdigest() if self.query else None
        source, target = (
            {"place": _public(side.place), "identity": dict(side.identity())}
            for side in (self.source, self.target)
        )
        return {
            "source": {**source, "query_sha256": query},
            "target": {"kind": self.kind, **target},
        }

    def servers(self) -> dict[str, str | None]:
        """Return the versions of the servers of PostgreSQL."""
        return {
            name: side.server_version if isinstance(side, PostgresSide) else None
            for name, side in (("source", self.source), ("target", self.target))
        }


class NewCertificate:
    """A certificate that is going to be written."""

    def __init__(self, path: Path, signer: Signer | None) -> None:
        """Check that the file can be written.

        Raises ConfigurationError: it cannot, or is there already, or would not be known by its
        name.
        """
        if path.suffix != ".json":
            raise ConfigurationError(
                f"--certificate {path} does not end with .json, by which `changelog verify` knows "
                "a certificate"
            )
        check_new(path)
        self.path, self._signer = path, signer

    @classmethod
    def of(cls, options: CopyOptions) -> NewCertificate | None:
        """Return the certificate that the options ask for, if any.

        Raises ConfigurationError: file or key cannot be used.
        """
        if not options.certificate:
            return None
        key = options.certificate_key
        return cls(Path(options.certificate), KeyFile(Path(key)) if key else None)

    def write(
        self, compared: ComparedPair, report: Report, repaired: Mapping[str, int] | None
    ) -> None:
        """Write the certificate of a comparison.

        `repaired`: keys by outcome of the repair before it.

        Raises SinkError: it cannot be written.
        """
        facts = facts_of(compared, report, repaired)
        subject = {"name": facts["target"]["place"], "digest": {SUBJECT: subject_digest(facts)}}
        write_new(self.path, sealed(written(KIND, [subject], facts), self._signer))


def subject_digest(facts: Mapping[str, Any]) -> str:
    """Return the digest of the facts that say which two were compared, and by which columns."""
    return hashlib.sha256(canonical({name: facts[name] for name in OF_SUBJECT})).hexdigest()


def facts_of(
    compared: ComparedPair, report: Report, repaired: Mapping[str, int] | None
) -> dict[str, Any]:
    """Return the predicate of a certificate.

    `repaired`: keys by outcome of the repair before the comparison, None without one.
    """
    plan, buckets = report.plan, report.plan.buckets
    return {
        "meaning": MEANING,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        **compared.facts(),
        "key": [column.name for column in plan.key],
        "columns": [
            {
                "source": column.name,
                "source_type": column.native.name,
                "target": column.target,
                "target_type": column.target_native.name,
                "compared_as": str(column.form),
            }
            for column in plan.columns
        ],
        "not_compared": _not_compared(compared, report),
        "notes": [_public(note) for note in report.notes],
        "began": report.began.to_json(),
        "ended": report.ended.to_json(),
        "settle_seconds": report.settle_s,
        "sample": {
            "share": report.sample,
            "buckets": buckets.count,
            "compared_buckets": buckets.sampled or buckets.count,
        },
        "looks": report.looks,
        "seconds": round(report.seconds, 3),
        "rows": {"source": report.source_rows, "target": report.target_rows},
        "verdict": {
            "result": {True: "equal", False: "differs", None: "undecided"}[report.verified],
            "differing_keys": report.mismatches,
            "at_least": report.is_at_least,
            "undecided_keys": len(report.open),
        },
        "repair": None if repaired is None else dict(repaired),
        "servers": compared.servers(),
        "engines": {
            "python": platform.python_version(),
            **{name: version(name) for name in _ENGINES},
        },
    }


def _not_compared(compared: ComparedPair, report: Report) -> list[dict[str, str]]:
    """Return the columns of either side that were not compared, with reasons."""
    columns, reasons = report.plan.columns, report.not_compared
    unnamed = _without(compared.source.columns(), [*reasons, *(c.name for c in columns)])
    unpaired = _without(compared.target.columns(), [*reasons, *(c.target for c in columns)])
    listed = [
        *(("source", name, reason) for name, reason in reasons.items()),
        *(("source", name, "not among the named columns") for name in unnamed),
        *(("target", name, "no column of the source is compared with it") for name in unpaired),
    ]
    return [
        {"side": side, "column": name, "reason": _public(reason)} for side, name, reason in listed
    ]


def _without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    listed = {*others}
    return [name for name in names if name not in listed]


def _public(text: str) -> str:
    """Return a text without passwords, and without users and parameters of URLs."""
    return _utf8(_PARAMETERS.sub(r"\1?***", _USER.sub("://***@", redacted(text))))


def _utf8(text: str) -> str:
    """Return a text as UTF-8 can have it, which names of files need not be."""
    return text.encode("utf-8", "backslashreplace").decode()
