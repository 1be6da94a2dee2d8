"""Outcome of a run: a result for each view, and the error of its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changelog.contract.base.errors import ChangelogError, LockedError, RefutedError, VerdictError
from views.rebuild.result.report import ViewResult

_WORST_FIRST = (
    RefutedError.exit_code,
    VerdictError.exit_code,
    ChangelogError.exit_code,
    2,  # usage or configuration, of several families of errors
    LockedError.exit_code,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        results: one for each view, also for those that failed.
        error: the worst of theirs, or that of the run when it has no result; None when all is well.
    """

    results: tuple[ViewResult, ...]
    error: ChangelogError | None = None

    @classmethod
    def of(cls, results: Iterable[ViewResult]) -> Outcome:
        """Return the outcome of views each of which says how it went."""
        whole = tuple(results)
        return cls(whole, worst(result.error for result in whole))

    def errors(self) -> list[ChangelogError]:
        """Return each error once: views that failed for one reason share it."""
        own = [result.error for result in self.results if result.error is not None]
        distinct = list({id(error): error for error in own}.values())
        return distinct or ([self.error] if self.error is not None else [])


def worst(errors: Iterable[ChangelogError | None]) -> ChangelogError | None:
    """Return the error whose exit code matters most: refuted, verdict, failed, usage, locked."""
    present = [error for error in errors if error is not None]
    return min(present, key=lambda error: _WORST_FIRST.index(error.exit_code), default=None)
