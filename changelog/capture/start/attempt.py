"""State that the parts of one attempt of capture share."""

from __future__ import annotations

from dataclasses import dataclass

from changelog.capture.start.environment import Environment
from changelog.capture.state.ledger import Ledger
from changelog.capture.state.progress import Progress
from changelog.capture.state.start_state import Context, StartState
from changelog.config import Project
from changelog.sink.producer import LogProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """State that the parts of one attempt share."""

    environment: Environment  # servers, tables and topics
    context: Context  # report, progress bar, stop, crash points
    producer: LogProducer  # writes the stream's records
    start: StartState  # where the attempt began
    progress: Progress  # how far the stream is, and up to where it may be acknowledged
    ledger: Ledger  # state of each topic

    @classmethod
    def begin(
        cls, environment: Environment, context: Context, producer: LogProducer, start: StartState
    ) -> Attempt:
        """Return an attempt at its start."""
        progress = Progress(start.lsn)
        progress.hold_until(start.hold_until)
        return cls(
            environment=environment,
            context=context,
            producer=producer,
            start=start,
            progress=progress,
            ledger=Ledger(start),
        )

    @property
    def settings(self) -> Project:
        """Return the project."""
        return self.environment.settings

    @property
    def epoch(self) -> int:
        """Return the epoch of all positions that this attempt writes."""
        return self.start.epoch
