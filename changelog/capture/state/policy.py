"""Policy for the error of one table: stop, copy it again or exclude it. Decided here alone."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from changelog.contract.base.errors import (
    ChangelogError,
    EncodeError,
    KeyConflictError,
    RecordRefusedError,
    RecordsRemovedError,
    SchemaConflictError,
    SourceError,
    UncapturableTableError,
)
from changelog.contract.rows.relation import TableName
from changelog.sections import CaptureSettings

TABLE_ERRORS = (EncodeError, SchemaConflictError, UncapturableTableError, RecordRefusedError)
"""Errors that are one table's alone: the log of the others stays exact without it."""

_CHANGED = (SchemaConflictError, UncapturableTableError, RecordsRemovedError)
_ANEW = "start with `--on-incompatible resnapshot`: the table is copied anew, the others go on"
_WITHOUT = "with `--on-error log`: the others go on without it"


class Reaction(Enum):
    """Reaction to the error of a table."""

    STOP = "stop"
    COPY = "copy"
    """No frontier speaks of it until it is copied anew."""
    EXCLUDE = "exclude"
    """No frontier speaks of it until somebody asks for a copy."""


def answer(error: ChangelogError, capture: CaptureSettings, *, copying: bool = False) -> Reaction:
    """Return the reaction to the error of a table.

    `copying` says that the table is being copied anew already, so that this is no way out.
    """
    if _is_mended_by_a_copy(error, copying=copying) and capture.on_incompatible == "resnapshot":
        return Reaction.COPY
    if capture.on_error == "log":
        return Reaction.EXCLUDE
    return Reaction.STOP


def with_way_out(error: ChangelogError, *, copying: bool = False) -> ChangelogError:
    """Return the error with the ways out when it stops capture, each named once."""
    if _WITHOUT in error.hint:
        return error
    ways = [error.hint] if error.hint else []
    if _is_mended_by_a_copy(error, copying=copying):
        ways.append(_ANEW)
    ways.append(f"{'or' if ways else 'start'} {_WITHOUT}")
    error.hint = "; ".join(ways)
    return error


def check_limit(excluded: Collection[TableName], capture: CaptureSettings) -> None:
    """Check that no more tables are excluded than the settings allow.

    Raises SourceError: there are more.
    """
    most = capture.error_limit
    if most is not None and len(excluded) > most:
        raise SourceError(
            f"{len(excluded)} tables are excluded, and --error-limit allows {most}: "
            + ", ".join(map(str, sorted(excluded))),
            hint="`changelog status` says why; mend them, or exclude them by --exclude",
        )


def _is_mended_by_a_copy(error: ChangelogError, *, copying: bool) -> bool:
    changed = isinstance(error, _CHANGED) and not isinstance(error, KeyConflictError)
    return changed and not copying
