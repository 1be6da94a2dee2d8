"""An in-toto Statement with a predicate of our own and a checksum. Pure.

Its bytes are canonical: JSON with sorted names, two blanks an indent, nothing escaped that need not
be, and a line feed at the end. `checksum` is the SHA-256 of these bytes with an empty `checksum`,
so each changed byte shows without a signature too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changelog.contract.base.errors import RefutedError

STATEMENT = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it was written."""

    content: bytes
    statement: Mapping[str, Any]  # the same, parsed

    @property
    def sha256(self) -> str:
        """Return the digest of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def kind(self) -> str:
        """Return the type of the predicate."""
        return str(self.statement["predicateType"])

    @property
    def predicate(self) -> Mapping[str, Any]:
        """Return the stated facts."""
        predicate: Mapping[str, Any] = self.statement["predicate"]
        return predicate


def written(
    kind: str, subjects: Sequence[Mapping[str, Any]], predicate: Mapping[str, Any]
) -> bytes:
    """Return the statement of a predicate that has all but its checksum."""
    statement = {
        "_type": STATEMENT,
        "subject": list(subjects),
        "predicateType": kind,
        "predicate": dict(predicate),
    }
    return canonical(_with_checksum(statement, _checksum(statement)))


def parsed(content: bytes, name: str) -> Statement:
    """Read a statement.

    Raises RefutedError: it is none, or a byte of it was changed since it was written.
    """
    try:
        statement = json.loads(content)
        kind, checksum = statement["_type"], statement["predicate"]["checksum"]
        _ = statement["predicateType"]
        is_canonical = canonical(statement) == content
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise altered(name, "it is no statement") from error
    if kind != STATEMENT:
        raise altered(name, f"it is a {kind}")
    if not is_canonical:
        raise altered(name, "it is written in another form")
    if _checksum(statement) != checksum:
        raise altered(name, "its checksum is another")
    return Statement(content, statement)


def altered(name: str, why: str) -> RefutedError:
    """Return the error for a file that is not as it was written, or was never a certificate."""
    return RefutedError(
        f"{name} is altered, or no certificate: {why}",
        hint="take the file as it was written: those of views are below _certificates in the "
        "warehouse",
    )


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a document of JSON, which has only these."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _checksum(statement: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(_with_checksum(statement, ""))).hexdigest()


def _with_checksum(statement: Mapping[str, Any], checksum: str) -> dict[str, Any]:
    return {**statement, "predicate": {**statement["predicate"], "checksum": checksum}}
