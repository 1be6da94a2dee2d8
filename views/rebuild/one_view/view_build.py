"""One view of a run, as far as it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from changelog.contract.base.errors import ChangelogError
from views.base.address import Address
from views.base.config import Source
from views.generations.generation import Generation
from views.generations.served import Served
from views.project.spec import ViewSpec
from views.verify.compare.report import VerifyReport


@dataclass(slots=True, kw_only=True)
class ViewBuild:
    """One view of a run, as far as it has come.

    Attributes:
        spec: its declaration.
        served: its sinks.
        generation: what is built.
        previous: the generation that serves meanwhile, or None.
        rows: of the new generation, once it is written.
        columns: names and types, once it is analysed.
        addresses: where each sink's rows can be read before readers see them.
        reports: of verification, by sink.
        published: whether readers see it.
        staged: whether it waits, whole, for somebody to publish it.
        replaced: the staged generations that it takes the place of.
        switch_seconds: how long the sinks differed while readers moved; None before.
        declaration: the view as it is declared, for the history.
        unchanged: whether no row differs from what serves, so that nothing is written.
        definition: fingerprint of what the rows are made by, besides the log.
        origin: what they are made of.
        error: why it is not published, or None.
    """

    spec: ViewSpec
    served: Served
    generation: Generation
    previous: int | None
    rows: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    addresses: Mapping[str, Address] = field(default_factory=dict)
    reports: Mapping[str, VerifyReport] = field(default_factory=dict)
    published: bool = False
    staged: bool = False
    replaced: tuple[int, ...] = ()
    switch_seconds: float | None = None
    declaration: Mapping[str, Any] = field(default_factory=dict)
    unchanged: bool = False
    definition: str = ""
    origin: str = Source.START.value
    error: ChangelogError | None = None

    @property
    def verified(self) -> bool | None:
        """Tell whether every sink's rows are proved; None when nobody asked or nobody can say."""
        found = [report.verified for report in self.reports.values()]
        if not found or (None in found and False not in found):
            return None
        return False not in found

    @property
    def mismatches(self) -> int | None:
        """Return the differences that were found in all sinks; None without a report."""
        found = [report.mismatches for report in self.reports.values()]
        return sum(found) if found else None

    @property
    def is_pending(self) -> bool:
        """Tell whether there is something to verify and publish."""
        return self.error is None and not self.unchanged
