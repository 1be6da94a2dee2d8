"""The history of generations: a Delta table in the warehouse that is only appended to.

One row per step of a generation: `sealed` (whole, verified as far as asked for, about to be
swapped in), `staged` (the same, but put aside until somebody publishes it), `published` (by a
rollback too, which its note says), `refuted` (before readers saw it, or while it served),
`failed`, `retired` (and removed), `aborted` (staged, and removed before anybody saw it). A row
`dropped` ends all generations of a view up to then: it was removed from its sinks. The row
`sealed` is the intent: a rebuild that is killed between the swap and the row `published` left it
behind, so that the next one can tell what serves and with which certificate. Sinks, not the
history, are the truth about what serves.

Written with deltalake, without Spark: an append takes milliseconds, `--history` needs no session,
and appends of several rebuilds at once do not conflict. Each append is a file, and a reader opens
them all: views that are followed make thousands in a day, so they are put together now and then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.base.secret import redacted
from changelog.contract.log.frontier import Frontier
from changelog.runtime.stores import of_deltalake
from replay.spark.files import Files
from replay.spark.object_store import silence
from replay.spark.warehouse import SETTINGS, read_rows, text_literal, tidy
from views.generations.generation import GenerationState

FOLDER = "_history"
MANY_FILES = 30
TIDY_HOURS = 1
"""How long a file stays for a reader that has opened the table."""
SEALED = GenerationState.SEALED.value
PUBLISHED = GenerationState.PUBLISHED.value
REFUTED = GenerationState.REFUTED.value
FAILED = GenerationState.FAILED.value
RETIRED = GenerationState.RETIRED.value
STAGED = GenerationState.STAGED.value
ABORTED = GenerationState.ABORTED.value
DROPPED = "dropped"
"""Of a view, not of one generation."""

CHANGES = "changes"
"""In a certificate, in place of a sink: the proof of the changed rows that all sinks are sent."""

UNCHANGED = "refresh: unchanged"
"""The origin of rows that are true at a later frontier too: what they were made of was not touched.

Nothing is compared for it; such a row bears the certificate of the one before it.
"""
_QUOTING = ("differences", "notes", "ranges", "left_out")
"""Parts of a certificate in the history that may have values of rows."""
_ERASED_NOTE = "what stood here may have named a row, and was erased"
UNCHANGED_EVERY = timedelta(minutes=10)
"""A generation of which no row changes is in the history once in so long."""

_SCHEMA = pa.schema(
    [
        ("view", pa.string()),
        ("generation", pa.int64()),
        ("state", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("run", pa.string()),
        ("epoch", pa.int64()),
        ("lsn", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("verdict", pa.string()),
        ("rows", pa.int64()),
        ("records_read", pa.int64()),
        ("tombstones", pa.int64()),
        ("seconds", pa.string()),
        ("verified", pa.bool_()),
        ("mismatches", pa.int64()),
        ("certificate", pa.string()),
        ("sinks", pa.string()),
        ("note", pa.string()),
        ("definition", pa.string()),
        ("origin", pa.string()),
        ("switch_seconds", pa.float64()),
        ("declaration", pa.string()),
        ("together", pa.string()),
    ]
)
_OUTCOME = ("verified", "rows_expected", "rows_served", "mismatches", "notes")
"""What a list of generations tells of a certificate."""
_LATER = ("definition", "origin")  # a history from before has no such columns
_NESTED = ("declaration", "together")  # nor these
Step = tuple[int, str]
"""A generation and a state that it came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One step of one generation; the columns of the table, in its order."""

    view: str  # the view's name
    generation: int  # its number
    state: str  # one of the constants of this module
    at: datetime = field(default_factory=lambda: datetime.now(UTC))  # when the step was done
    run: str = ""  # the rebuild; the views of one run share it
    epoch: int | None = None  # of the frontier
    lsn: str | None = None  # of the frontier
    ts: datetime | None = None  # of the frontier
    verdict: str | None = None  # of the log at that frontier
    rows: int | None = None  # of the view
    records_read: int | None = None  # from the topics
    tombstones: int | None = None  # among these
    seconds: Mapping[str, float] = field(default_factory=dict)  # by stage
    verified: bool | None = None  # None when it was not asked for or could not be done
    mismatches: int | None = None  # that verification found
    certificate: Mapping[str, Any] = field(default_factory=dict)  # verification's own account
    sinks: tuple[str, ...] = ()  # where the view is served
    note: str = ""  # why, when there is something to say
    definition: str = ""  # fingerprint of what the rows were made by, besides the log
    origin: str = ""  # what they were made of: `start`, `checkpoint`, or how a refresh went
    # from the moment the first sink had moved until the last one had
    switch_seconds: float | None = None
    # the view as it was: `text` of its file, `key`, `columns` with their types, `options` of its
    # sinks where it has any
    declaration: Mapping[str, Any] = field(default_factory=dict)
    # the generations of all views that are published with it, or none of them is
    together: Mapping[str, int] = field(default_factory=dict)

    def to_columns(self) -> dict[str, Any]:
        """Return the row as the table has it: nested values as JSON."""
        row = {name: getattr(self, name) for name in _SCHEMA.names}
        row["seconds"] = json.dumps(dict(self.seconds))
        row["certificate"] = json.dumps(dict(self.certificate), default=str)
        row["sinks"] = ",".join(self.sinks)
        for name in _NESTED:
            value = getattr(self, name)
            row[name] = json.dumps(dict(value)) if value else ""
        return row

    @classmethod
    def from_columns(cls, row: Mapping[str, Any]) -> HistoryRow:
        """Read a row of the table."""
        later = {*_LATER, *_NESTED, "switch_seconds"}
        values = {name: row[name] for name in _SCHEMA.names if name not in later}
        values |= {name: row.get(name) or "" for name in _LATER}
        values["switch_seconds"] = row.get("switch_seconds")
        values |= {name: json.loads(row.get(name) or "{}") for name in _NESTED}
        values["seconds"] = json.loads(row["seconds"])
        values["certificate"] = json.loads(row["certificate"])
        values["sinks"] = tuple(filter(None, row["sinks"].split(",")))
        return cls(**values)

    def again(self, **changes: Any) -> HistoryRow:  # noqa: ANN401 - any of the columns
        """Return the row of a later step of this generation, which is done now."""
        return replace(self, **{"at": datetime.now(UTC), **changes})

    @property
    def is_bare(self) -> bool:
        """Tell whether a row describes nothing of the build: neither a place nor a proof."""
        return self.lsn is None and self.verified is None and not self.certificate

    @property
    def is_of_changes(self) -> bool:
        """Tell whether the changed rows alone were compared, in some sink at least."""
        return is_of_changes(self.certificate, self.sinks)

    @property
    def is_of_sample(self) -> bool:
        """Tell whether a sample of the rows was compared."""
        reports = self.certificate.values()
        return any(r.get("certificate", {}).get("mode") == "sample" for r in reports)

    @property
    def has_equal_inputs(self) -> bool:
        """Tell whether the inputs were verified, of a view in Python, which has no more proof."""
        return self.verified is None and bool(self.certificate) and self.mismatches == 0

    def to_json(self) -> dict[str, Any]:
        """Return the row for `--history --json`: of each certificate only its outcome.

        The whole certificates are in the table's column `certificate`, the texts of the views in
        `declaration`.
        """
        row = {name: getattr(self, name) for name in _SCHEMA.names if name != "declaration"}
        row["certificate"] = {
            sink: {name: report[name] for name in _OUTCOME if name in report}
            for sink, report in self.certificate.items()
        }
        row["at"] = self.at.isoformat()
        row["ts"] = self.ts.isoformat() if self.ts is not None else None
        row["sinks"] = list(self.sinks)
        return row


class GenerationHistory:
    """The history of a warehouse."""

    def __init__(self, warehouse: str) -> None:
        place = warehouse.rstrip("/") + "/" + FOLDER
        self._place = of_deltalake(place)
        self._steps: tuple[tuple[str, int], dict[str, list[Step]]] | None = None
        """What `steps` read last, and of which table's which version."""
        self._declared: tuple[tuple[str, int], dict[tuple[str, int], str]] | None = None
        """What `declaration` read last, likewise."""

    def identity(self) -> str:
        """Return the id of this history, creating the table if it does not exist."""
        identity = self.known_identity()
        if identity is None:
            try:
                DeltaTable.create(self._place, _SCHEMA, mode="ignore", configuration=SETTINGS)
            except (DeltaError, OSError) as error:
                # Of two that make it at once one fails, and both read that of the other.
                if (identity := self.known_identity()) is None:
                    raise self._failed("made", error) from error
            identity = identity or self.known_identity()
        if identity is None:
            raise ChangelogError(f"the history {redacted(self._place)} is not there")
        return identity

    def known_identity(self) -> str | None:
        """Return the id of this history, or None where there is no history yet.

        Raises ChangelogError: the table is there and cannot be read.
        """
        table = self._delta_table()
        return None if table is None else str(table.metadata().id)

    def append(self, rows: Iterable[HistoryRow]) -> None:
        """Add rows in one commit.

        Raises ChangelogError: the table cannot be written.
        """
        table = pa.Table.from_pylist([row.to_columns() for row in rows], schema=_SCHEMA)
        if table.num_rows == 0:
            return
        try:
            _append(self._place, table)
        except (DeltaError, OSError) as error:
            raise self._failed("written", error) from error

    def rows(
        self, views: Iterable[str] | None = None, *, generation: int | None = None
    ) -> list[HistoryRow]:
        """Read the rows of some views, or of all, oldest first.

        Raises ChangelogError: the table is there and cannot be read.
        """
        conditions = ["true"]
        if views is not None:
            names = ", ".join(map(text_literal, views))
            conditions = [f"view IN ({names})" if names else "false"]
        if generation is not None:
            conditions.append(f"generation = {generation}")
        columns_of_rows = self._read_rows(self._delta_table(), (), " AND ".join(conditions))
        rows = map(HistoryRow.from_columns, columns_of_rows)
        return sorted(rows, key=lambda row: row.at)

    def steps(self, view: str) -> list[Step]:
        """Return generation and state of each row of a view, oldest first.

        Raises ChangelogError: the table is there and cannot be read.
        """
        table = self._delta_table()
        version = _version(table)
        if version is None:
            return []
        if self._steps is None or self._steps[0] != version:
            steps: dict[str, list[Step]] = {}
            rows = self._read_rows(table, ["view", "generation", "state", "at"])
            for row in sorted(rows, key=lambda row: row["at"]):
                steps.setdefault(row["view"], []).append((row["generation"], row["state"]))
            self._steps = version, steps
        return list(self._steps[1].get(view, ()))

    def declaration(self, view: str, generation: int) -> Mapping[str, Any] | None:
        """Return a view as it was declared for a generation, or None if that is not on record.

        Raises ChangelogError: the table is there and cannot be read.
        """
        table = self._delta_table()
        version = _version(table)
        if version is None:
            return None
        if self._declared is None or self._declared[0] != version:
            rows = self._read_rows(
                table, ["view", "generation", "declaration", "at"], "declaration <> ''"
            )
            self._declared = (
                version,
                {
                    (row["view"], row["generation"]): row["declaration"]
                    for row in sorted(rows, key=lambda row: row["at"])
                },
            )
        text = self._declared[1].get((view, generation))
        return None if text is None else dict(json.loads(text))

    def states(self, view: str) -> dict[int, str]:
        """Return the last state of each generation of a view.

        Raises ChangelogError: the table is there and cannot be read.
        """
        return states_of(self.steps(view))

    def version(self) -> tuple[str, int] | None:
        """Return a version that changes with every append, or None if there is no history.

        Raises ChangelogError: the table is there and cannot be read.
        """
        return _version(self._delta_table())

    def _read_rows(
        self, table: DeltaTable | None, columns: Sequence[str], condition: str = ""
    ) -> list[dict[str, Any]]:
        if table is None:
            return []
        try:
            arrow = read_rows(table, columns, condition)
        except (DeltaError, OSError) as error:
            raise self._failed("read", error) from error
        rows: list[dict[str, Any]] = arrow.to_pylist()
        return rows

    def forget_rows(self, first: Mapping[str, int]) -> int:
        """Rewrite the history without the values of rows that proofs and errors have noted.

        Older files of the table and of its log go, which readers that have just opened it may miss.

        `first`: of some views a generation; the ones before it are rewritten.

        Returns:
            The number of rows of the history that had some.

        Raises ChangelogError: the table cannot be read or written.
        """
        rows = self.rows()
        plain = [
            _without_values(row) if row.generation < first.get(row.view, 0) else row for row in rows
        ]
        table = self._delta_table()
        if plain == rows or table is None:
            return 0
        written = pa.Table.from_pylist([row.to_columns() for row in plain], schema=_SCHEMA)
        try:
            write_deltalake(
                table, written, mode="overwrite", configuration=SETTINGS,
                commit_properties=CommitProperties(max_commit_retries=0),
            )  # fmt: skip
            table = DeltaTable(self._place)
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            table.create_checkpoint()
            self._remove_older_log(table.version())
        except (DeltaError, OSError) as error:
            raise self._failed("written", error) from error
        return sum(before != after for before, after in zip(rows, plain, strict=True))

    def _remove_older_log(self, version: int) -> None:
        """Remove what is in the table's log before the checkpoint of a version."""
        files, folder = Files(), f"{self._place}/_delta_log"
        for name in files.names(folder):
            number = name.partition(".")[0]
            if number.isdecimal() and int(number) < version:
                files.remove_file(f"{folder}/{name}")

    def _delta_table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._place)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._failed("read", error) from error

    def tidy(self) -> None:
        """Compact the files of many appends into one, and remove files replaced long ago.

        Raises ChangelogError: the table cannot be written.
        """
        try:
            table = self._delta_table()
            if table is None or len(table.file_uris()) < MANY_FILES:
                return
            table.optimize.compact()
            tidy(table, TIDY_HOURS)
        except CommitFailedError:
            return  # another run does the same
        except (DeltaError, OSError) as error:
            raise self._failed("tidied", error) from error

    def _failed(self, participle: str, error: Exception) -> ChangelogError:
        if (silent := silence(self._place, str(error))) is not None:
            return UnavailableError(silent, hint="see that it runs, then run it again")
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return ChangelogError(f"the history {redacted(self._place)} cannot be {participle}: {line}")


def _version(table: DeltaTable | None) -> tuple[str, int] | None:
    return None if table is None else (str(table.metadata().id), table.version())


def last_states(rows: Iterable[HistoryRow]) -> dict[tuple[str, int], HistoryRow]:
    """Return the last step of each generation; rows come oldest first.

    A step that is a word alone, such as `retired`, leaves what was built and proved as it was.
    """
    last: dict[tuple[str, int], HistoryRow] = {}
    for row in rows:
        key = row.view, row.generation
        before = last.get(key)
        if before is None or not row.is_bare:
            last[key] = row
        else:
            note = row.note or before.note
            last[key] = replace(before, state=row.state, at=row.at, note=note)
    return last


def is_of_changes(certificate: Collection[str], sinks: Iterable[str]) -> bool:
    """Tell whether the changed rows alone were compared, in some sink at least."""
    return CHANGES in certificate and not set(certificate) >= set(sinks)


def as_served(rows: Sequence[HistoryRow]) -> HistoryRow | None:
    """Return the newest row of what readers of a view have, or None where that is nothing.

    It says `published`, or `refuted` where what they see was found to differ since.

    `rows`: of the view, oldest first.
    """
    for place in reversed(range(len(rows))):
        row = rows[place]
        if row.state not in {PUBLISHED, DROPPED}:
            continue
        refuted = [r for r in rows[place:] if (r.generation, r.state) == (row.generation, REFUTED)]
        return None if row.state == DROPPED else next(reversed(refuted), row)
    return None


def _without_values(row: HistoryRow) -> HistoryRow:
    """Return a row of the history without values of the view's rows.

    Differences and errors quote them, and of what was proved the first and last key of each range.
    """
    certificate = {name: _plain_report(report) for name, report in row.certificate.items()}
    is_error = row.note and row.state in {REFUTED, FAILED}
    return replace(row, certificate=certificate, note=_ERASED_NOTE if is_error else row.note)


def _plain_report(report: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in report.items() if name not in _QUOTING}
    if isinstance(inner := plain.get("certificate"), dict):
        plain["certificate"] = _plain_report(inner)
    return plain


def all_proved_at(rows: Iterable[HistoryRow], generation: int) -> datetime | None:
    """Return when all rows of a generation were proved last, or None if that is not on record."""
    moments = [
        row.at for row in rows
        if row.generation == generation and row.verified
        and not (row.is_of_changes or row.is_of_sample or row.origin == UNCHANGED)
    ]  # fmt: skip
    return max(moments, default=None)


def as_built(rows: Iterable[HistoryRow], generation: int) -> HistoryRow | None:
    """Return the newest row that says what a generation holds and how it was proved, or None."""
    telling = {SEALED, STAGED, PUBLISHED, REFUTED}
    own = [row for row in rows if row.generation == generation and row.state in telling]
    with_place = [row for row in own if row.lsn is not None]
    return next(reversed(with_place or own), None)


def position_on_record(
    rows: Iterable[HistoryRow], generation: int, *, written: bool = False
) -> Position | None:
    """Return the last position to which a generation's rows are known to be true, or None.

    `written`: count only steps that wrote rows, not those that found the rows still true.
    """
    positions = [
        Position(row.epoch, Lsn.parse(row.lsn), 0)
        for row in rows
        if row.generation == generation and row.state in {SEALED, STAGED, PUBLISHED}
        and row.epoch is not None and row.lsn is not None
        and not (written and row.origin == UNCHANGED)
    ]  # fmt: skip
    return max(positions, default=None)


def is_of_older_epoch(rows: Iterable[HistoryRow], generation: int, epoch: int | None) -> bool:
    """Tell whether a generation is of an epoch before the log's: of a history that is gone.

    `epoch`: of the newest frontier; None where it is not known, or none of the view's tables is
    captured by this project.
    """
    position = position_on_record(rows, generation)
    return position is not None and epoch is not None and position.epoch < epoch


def unchanged_at(
    rows: Sequence[HistoryRow], generation: int, frontier: Frontier, run: str
) -> HistoryRow | None:
    """Return a row that says of a generation that its rows are true at a later frontier too.

    None where what it was made of is not on record, or it is refuted.

    `rows`: of the view, oldest first.
    """
    built = as_built(rows, generation)
    if built is None or built.state == REFUTED or built.lsn is None:
        return None
    return built.again(
        state=PUBLISHED,
        run=run,
        epoch=frontier.epoch,
        lsn=str(frontier.lsn),
        ts=datetime.fromtimestamp(frontier.ts_us / 1_000_000, UTC),
        origin=UNCHANGED,
        seconds={},
        switch_seconds=None,
        note="",
        together={},
    )


def states_of(steps: Iterable[Step]) -> dict[int, str]:
    """Return the last state of each generation, the most recently changed one last.

    A dropped view has none that is anything else.
    """
    states: dict[int, str] = {}
    for generation, state in steps:
        states.pop(generation, None)
        states[generation] = state
        if state == DROPPED:
            states = dict.fromkeys(states, DROPPED)
    return states


@retry(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), reraise=True)
def _append(place: str, table: pa.Table) -> None:
    """Append; only the very first two appends can conflict, since both make the table."""
    write_deltalake(place, table, mode="append", schema_mode="merge", configuration=SETTINGS)
