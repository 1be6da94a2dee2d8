"""Certificates of the generations that a run has published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from changelog.attestation.envelope import KeyFile, Signer
from changelog.contract.base.errors import ChangelogError, RefutedError, SinkError
from views.base.address import Address
from views.base.config import RebuildSettings
from views.base.failure import RebuildError, explained
from views.certificates.statement import Ranges
from views.verify.compare.compare import rows_hash
from views.verify.compare.digest import rows_digest
from views.verify.processes.scratch import MEMORY_LIMIT, first_row, scratch
from views.verify.served.documents import FAULT_COLUMN, ID_COLUMN
from views.verify.served.served import read_served
from views.verify.values.types import parse_type, quoted


def served_ranges(
    address: Address,
    columns: Sequence[tuple[str, str]],
    key: Sequence[str],
    proof: Mapping[str, Any] | None = None,
) -> Ranges:
    """Return the digests of the rows that a sink serves, in bounded memory.

    `columns`: names and Spark's names of the types. `proof`: the verifier's account of the same
    rows, whose hash they still have to have.

    Raises SinkError: it cannot be read, or has a row in another form than it was written in;
    RefutedError: its rows are no longer those that were proved.
    """
    types = [(name, parse_type(kind)) for name, kind in columns]
    with scratch(None, MEMORY_LIMIT) as database:
        read_served(database, "served", address, types, key)
        fault = f"FROM served WHERE {FAULT_COLUMN} IS NOT NULL LIMIT 1"
        odd = first_row(database, f"SELECT {quoted(ID_COLUMN)}, {FAULT_COLUMN} {fault}")
        if odd is not None:
            raise SinkError(
                f"{address.sink} has under {odd[0]!r} a row in another form than it was written "
                f"in: {odd[1]}",
                hint="something else has written there; rebuild the view",
            )
        proved_hash = (proof or {}).get("hash")
        if proved_hash and rows_hash(database, "served", types) != proved_hash:
            raise RefutedError(
                f"{address.sink} has other rows than those that were proved",
                hint="something else has written there; rebuild the view",
            )
        return rows_digest(database, "served", types, key)


def signer_of(settings: RebuildSettings) -> Signer | None:
    """Return the signer with the project's key, or None if the project has none.

    Raises ConfigurationError: the key cannot be used.
    """
    place = settings.rebuild.certificate_key
    return KeyFile(settings.project.root / Path(place).expanduser()) if place else None


def uncertified(view: str, done: str, error: Exception) -> ChangelogError:
    """Return the error about a generation that stays without a certificate; `done` to it is all."""
    reason = explained(error, f'the certificate of view "{view}"')
    if isinstance(reason, RefutedError):
        return reason
    return RebuildError(
        f'view "{view}" is {done} without its certificate: {reason.args[0]}',
        hint="rebuild it with --certificate again",
    )
