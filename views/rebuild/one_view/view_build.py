"""One view of a run, with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from changelog.contract.base.errors import ChangelogError
from replay.result.state import States
from views.base.address import Address
from views.base.config import RowsSource
from views.generations.generation import Generation
from views.generations.served import Served
from views.project.spec import ViewSpec
from views.rebuild.one_view.delta import Delta
from views.rebuild.one_view.refresh import RefreshBase
from views.sinks.base import ForwardSink
from views.verify.compare.report import VerifyReport, verdict_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(slots=True, kw_only=True)
class ViewBuild:
    """One view of a run, with its progress."""

    spec: ViewSpec  # its declaration
    served: Served  # its sinks
    generation: Generation  # what is built
    previous: int | None  # the generation that serves meanwhile, or None
    rows: int | None = None  # of the new generation, once it is written
    columns: tuple[tuple[str, str], ...] = ()  # names and types, once it is analysed
    schema: StructType | None = None  # of its rows, likewise
    # where each sink's rows can be read before readers see them
    addresses: Mapping[str, Address] = field(default_factory=dict)
    reports: Mapping[str, VerifyReport] = field(default_factory=dict)  # of verification, by sink
    published: bool = False  # whether readers see it
    staged: bool = False  # whether it waits, whole, for somebody to publish it
    replaced: tuple[int, ...] = ()  # the staged generations that it takes the place of
    # how many rows each sink goes without, since its server refuses them
    refused: Mapping[str, int] = field(default_factory=dict)
    # how long the sinks differed while readers moved; None before
    switch_seconds: float | None = None
    # the view as it is declared, for the history
    declaration: Mapping[str, Any] = field(default_factory=dict)
    unchanged: bool = False  # whether no row differs from what serves, so that nothing is written
    # what brings the generation that serves to the frontier; None where a new one is built
    delta: Delta | None = None
    # the sinks that take the delta
    forward: Mapping[str, ForwardSink] = field(default_factory=dict)
    # what it goes on from, once history and sinks were asked; None before
    standing: RefreshBase | None = None
    # when the history was last told of the generation that serves
    recorded_at: datetime | None = None
    definition: str = ""  # fingerprint of what the rows are made by, besides the log
    origin: str = RowsSource.START.value  # what they are made of
    # the states at the later frontier that the generation was brought to before it was published,
    # because a follower had shown readers more; None where it was not
    brought: States | None = None
    certificate_file: str = ""  # where its certificate is, once it is written
    # why it is published without the certificate that was asked for, or None
    uncertified: ChangelogError | None = None
    error: ChangelogError | None = None  # why it is not published, or None

    @property
    def verified(self) -> bool | None:
        """Tell whether every sink's rows are proved, or None if there is no result."""
        return verdict_of(self.reports.values())

    @property
    def mismatches(self) -> int | None:
        """Return the number of differences in all sinks, or None if there is no report."""
        counts = [report.mismatches for report in self.reports.values()]
        return sum(counts) if counts else None

    def bring(self, there: ViewBuild, states: States) -> None:
        """Take over the result of bringing a generation forward: itself, or its replacement."""
        if there.unchanged or there.delta is not None:
            self.reports = {**self.reports, **there.reports}
        else:
            for sink in self.served.sinks.values():
                sink.discard(self.generation.number)
            self.generation, self.addresses = there.generation, there.addresses
            self.reports = there.reports
        self.rows = self.rows if there.rows is None else there.rows
        self.refused = there.refused
        self.definition, self.declaration = there.definition, there.declaration
        self.columns, self.schema = there.columns, there.schema
        self.brought = states

    @property
    def is_pending(self) -> bool:
        """Tell whether there is something to verify, and then to publish or apply."""
        return self.error is None and not self.unchanged

    @property
    def number(self) -> int:
        """Return the generation that readers see after this run, if it succeeds."""
        stays = self.unchanged or self.delta is not None
        return self.previous if stays and self.previous is not None else self.generation.number
