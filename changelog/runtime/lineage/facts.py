"""Facts that an event tells: the job, its datasets, and the checks of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Place:
    """The name of a dataset, the same in every event of every program."""

    namespace: str  # the server, by OpenLineage's naming conventions
    name: str  # within it


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column whose values go into a computed column."""

    place: Place  # of its dataset
    column: str  # its name
    how: str  # `IDENTITY`, `TRANSFORMATION` or `AGGREGATION`
    is_masked: bool = False  # whether its values cannot be told from what is computed


@dataclass(frozen=True, slots=True)
class DatasetCheck:
    """The verdict of a comparison of a whole dataset."""

    name: str  # the kind of the comparison
    description: str  # a sentence for people
    passed: bool  # whether no row differs
    expected: str  # the number of rows that it must have
    actual: str  # the number of rows that it has
    parameters: Mapping[str, str | int] = field(default_factory=dict)  # further facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A dataset that a run reads or writes, as far as it is known."""

    place: Place
    columns: Mapping[str, str] = field(default_factory=dict)  # types by name
    version: str = ""  # of its rows
    sources: Mapping[str, Sequence[SourceColumn]] = field(default_factory=dict)  # of its columns
    rows: int | None = None  # written by the run
    checks: Sequence[DatasetCheck] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """The datasets of a run, as far as they are known."""

    inputs: Sequence[Dataset] = ()
    outputs: Sequence[Dataset] = ()


NOTHING_KNOWN = RunState()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work that is done again and again under one name."""

    name: str
    kind: str  # `CAPTURE` or `VIEW`
    is_streaming: bool = False  # whether it goes on until it is stopped
    description: str = ""
    query: str = ""  # in SQL
    dialect: str = ""  # its language


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A moment in a run."""

    kind: str  # `START`, `RUNNING`, `COMPLETE`, `FAIL` or `ABORT`
    at: datetime  # with its time zone
    run_id: str  # the same in all events of the run
    job: Job  # that is run
    state: RunState  # by then
    error: str = ""  # why it failed, without secrets
