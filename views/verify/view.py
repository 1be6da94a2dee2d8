"""Verify the rows that a sink serves for a view against the log, at the view's frontier.

The states are folded again from the records, DuckDB evaluates the view's query, and every row is
compared. Nothing of replay is used: a common function would make a common error invisible. A view
in Python cannot be recomputed here; its inputs can, and the report says so.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import ConfigurationError, VerdictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.joined import beside
from changelog.contract.log.versions import COMPLETE_FROM
from changelog.contract.rows.relation import TableName
from views.base.address import Address
from views.verify.compare.compare import (
    RELATIVE_TOLERANCE,
    Comparison,
    Equality,
    are_equal,
    hash_of_ranges,
    rows_hash,
)
from views.verify.compare.evidence import Evidence
from views.verify.compare.left_out import LeftOutRows, take_left_out
from views.verify.compare.report import Mismatch, VerifyReport
from views.verify.kept.resident import ResidentStates
from views.verify.log.states import Taken
from views.verify.log.tables import OFFSET_COLUMN, PARTITION_COLUMN, TableState, infinite
from views.verify.processes.scratch import MEMORY_LIMIT, first_row, lent
from views.verify.served.delta import conformed
from views.verify.served.served import read_served, take_sent
from views.verify.sql.bags import BagPlaces
from views.verify.sql.evaluate import (
    Evaluated,
    Keys,
    Prepared,
    computed_float,
    computing,
    evaluate,
    locating,
    ordered,
    rows_of,
)
from views.verify.sql.translate import INFINITE, UnverifiableError, columns_read
from views.verify.values.types import Type, logged_type, parse_type, quoted

_GONE = "__gone"
"""The column of sent rows that says whether there is no row of a key."""
Mode = Literal["full", "changed", "sample"]
_PREPARED: WeakKeyDictionary[ResidentStates, Prepared] = WeakKeyDictionary()
"""Kept for the databases of followers, who make the same evaluations again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRows:
    """Rows of some keys that are about to be sent to the sinks of a view."""

    rows: pa.Table  # the view's columns: a row for each key that the delta touches
    is_gone: pa.ChunkedArray  # whether there is no row of a key; then its other columns are null


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """Request to verify a view."""

    kafka: KafkaConnection  # the brokers
    registry: RegistryConnection  # the schema registry
    frontier: Frontier  # the one that the view was built at
    view: str  # its name
    tables: tuple[TableName, ...]  # the tables that it reads
    sql: str | None  # its query in Spark SQL, None for a view in Python
    key: tuple[str, ...]  # its key's columns
    # names of its columns and Spark's simple names of their types
    schema: tuple[tuple[str, str], ...]
    address: Address | None  # of the served generation; None to verify `sent`
    # rows of some keys, to verify only these, before any sink has them
    sent: SentRows | None = None
    # `full`; `changed` for the same, going on from stored states of earlier proofs if there are
    # any; `sample` for a part of the keys and the counts
    mode: Mode = "full"
    sample_share: float = 0.05  # the part that `sample` compares
    # of a view in Python, the places of the states that it was given
    states: Mapping[TableName, Address] = field(default_factory=dict)
    # of a view in Python, the columns that it was given of a table, if not all
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    work_directory: Path | None = None  # for scratch files, None for the system's temporary folder
    memory_limit: str = MEMORY_LIMIT  # DuckDB's, in its own notation
    max_differences: int = 20  # how many mismatched rows the report shows
    # how many rows a sink may report as left out; if it reports more, none is accepted
    left_out_at_most: int = 0
    history: bool = False  # whether its table has a row for each version of its rows

    @property
    def share(self) -> float:
        """Return the part of the keys that is compared."""
        return self.sample_share if self.mode == "sample" else 1.0


def verify_view(
    request: VerifyRequest, evidence: Evidence | ResidentStates | None = None
) -> VerifyReport:
    """Compare the served rows with the rows that follow from the log.

    `evidence`: of the same frontier, to share states with other requests, or the states of a
    follower; None reads for this request alone.

    Raises ChangelogError: the log, the registry or the sink cannot be read, or breaks its contract.
    A mismatch is not an error: it is in the report.
    """
    if not 0.0 < request.sample_share <= 1.0:
        raise ConfigurationError(f"a sample's share lies in (0, 1], not {request.sample_share}")
    started = time.monotonic()
    own = Evidence(
        request.kafka,
        request.registry,
        request.frontier,
        work_directory=request.work_directory,
        memory_limit=request.memory_limit,
        histories=request.history,
    )
    report: VerifyReport | None = None
    with own if evidence is None else nullcontext(evidence) as shared:
        if shared.frontier != request.frontier:
            raise ConfigurationError("the evidence is of another frontier than the view")
        work = _Verification(shared, request)
        try:
            report = work.sql_view(request.sql) if request.sql is not None else work.python_view()
        except UnverifiableError as error:
            report = work.unverified(f"{error}{work.infinities(str(error))}")
        except (duckdb.InternalException, duckdb.FatalException) as error:
            first = str(error).partition("\n")[0]
            report = work.unverified(f"cannot verify this view: DuckDB failed inside: {first}")
        finally:
            # After a proof the database is known to answer.
            if report is None or report.verified is not True:
                shared.restore()
    seconds = time.monotonic() - started
    took = {"seconds": round(seconds, 3), "stages": shared.stages.news()}
    certificate = {**report.certificate, **took}
    return replace(report, seconds=seconds, certificate=certificate)


def _place(frontier: Frontier, topics: Sequence[str]) -> dict[str, object]:
    """Return the identity and LSN of a frontier to which another capture's log was read."""
    return {
        "slot": frontier.slot,
        "system_id": frontier.system_id,
        "epoch": frontier.epoch,
        "lsn": str(frontier.lsn),
        "ts": frontier.ts_us,
        "ends": {topic: list(frontier.ends.get(topic, ())) for topic in topics},
    }


class _Verification:
    """The steps of one request, in one database."""

    def __init__(self, evidence: Evidence | ResidentStates, request: VerifyRequest) -> None:
        self._evidence = evidence
        self._database = evidence.database
        self._stages = evidence.stages
        self._prepared = (
            _PREPARED.setdefault(evidence, Prepared())
            if isinstance(evidence, ResidentStates) else Prepared()
        )  # fmt: skip
        self._request = request
        self._columns = [(name, parse_type(text)) for name, text in request.schema]
        self._taken: dict[TableName, Taken] = {}
        self._served = 0
        self._left_out = LeftOutRows()
        self._hash: str | None = None

    def sql_view(self, sql: str) -> VerifyReport:
        """Recompute the view and compare all of it, or a sample."""
        states = [self._state(table) for table in self._request.tables]
        types = {
            state.table: {c.column: logged_type(c.type) for c in state.seen} for state in states
        }
        sent, address = self._request.sent, self._request.address
        if sent is None:
            with self._stages.of("evaluate"):
                evaluated = evaluate(
                    self._database, "expected", sql, types, self._columns, prepared=self._prepared
                )
        else:
            rows = conformed("what is sent", sent.rows, self._columns)
            only = Keys("sent", rows.select(list(self._request.key)))
            with lent(self._database, only.relation, rows.append_column(_GONE, sent.is_gone)):
                live = pc.sum(pc.invert(sent.is_gone)).as_py() or 0
                if (report := self._as_sent(sql, types, only, live)) is not None:
                    return report
                with self._stages.of("evaluate"):
                    evaluated = evaluate(
                        self._database, "expected", sql, types, self._columns,
                        only=only, prepared=self._prepared,
                    )  # fmt: skip
        floats = evaluated.floats
        self._check_key(floats)
        if sent is not None:
            live_rows = sent.rows.filter(pc.invert(sent.is_gone))
            self._served = take_sent(self._database, "served", live_rows, self._columns)
        elif address is not None:
            self._read_served("served", address, self._columns, self._request.key)
        is_read_whole = sent is None and self._request.mode != "sample"
        served_hash = ""
        if is_read_whole and (evaluated.bags or self._request.mode == "changed"):
            served_hash = rows_hash(self._database, "served", self._columns)
        self._order("served", evaluated.bags)
        if self._request.history:
            self._require_same_beginning()
        names = {name: quoted(name) for name, _ in self._columns}
        with computing(), locating(self._database, "expected", names):
            self._left_out = self._taken_away(address)
        comparison = self._comparison(
            self._left_out.expected, self._columns, self._request.key, floats
        )
        computed = locating(self._database, "expected", names)
        with self._stages.of("compare"), computing(), computed:
            mismatches, expected = comparison.run()
            mismatches += self._left_out.false
            most = self._request.max_differences
            differing = comparison.differences(most) if mismatches else []
            is_whole = self._request.mode == "full" and mismatches == 0 and sent is None
            ranges = comparison.ranges() if is_whole else []
        if is_read_whole and mismatches == 0:
            self._hash = served_hash or hash_of_ranges(ranges)
        notes = [*self._notes(evaluated), *self._left_out.notes]
        mismatches, counts = self._counted(mismatches, expected)
        return self._report(
            verified=mismatches == 0,
            rows_expected=expected,
            mismatches=mismatches,
            differences=self._located(differing, states),
            notes=notes + counts,
            ranges=ranges,
        )

    def _as_sent(
        self, sql: str, types: Mapping[TableName, Mapping[str, Type]], only: Keys, count: int
    ) -> VerifyReport | None:
        """Return the report if the sent rows are the expected ones, found in one statement.

        None where they are not, or that cannot be told: the steps that follow say why.
        """
        if self._request.share < 1.0 or self._request.history:
            return None
        expected = rows_of(
            self._database, sql, types, self._columns, only=only, prepared=self._prepared
        )
        facts = expected.facts
        self._check_key(facts.floats)
        served = ", ".join(
            f"{ordered(quoted(name), name, kind, facts.bags)} AS {quoted(name)}"
            for name, kind in self._columns
        )
        sent = f"SELECT {served} FROM {quoted(only.relation)} WHERE NOT {quoted(_GONE)}"
        with self._stages.of("evaluate"), suppress(duckdb.Error):
            if are_equal(
                self._database, expected.query, sent, count,
                columns=self._columns, key=self._request.key, floats=facts.floats,
            ):  # fmt: skip
                self._served = count
                return self._report(
                    verified=True, rows_expected=count, mismatches=0, differences=[],
                    notes=self._notes(facts), ranges=[],
                )  # fmt: skip
        return None

    def _require_same_beginning(self) -> None:
        """Require that compaction has removed no version since the served ones were read.

        Raises VerdictError: it has, so that they cannot be compared.
        """
        (table,) = self._request.tables
        now = self._taken[table].complete_from or Lsn(0)
        least, most = first_row(
            self._database,
            f"SELECT min({COMPLETE_FROM}), max({COMPLETE_FROM}) FROM served",
        ) or (None, None)
        if least is not None and least == most and least < now:
            raise VerdictError(
                f'view "{self._request.view}" has the versions of {table} that were complete from '
                f"LSN {Lsn(int(least))} on, and the log has been compacted since: now they are "
                f"from LSN {now} on",
                hint="rebuild it: that reads what is there now",
            )

    def python_view(self) -> VerifyReport:
        """Compare the states that a Python view was given; its own rows cannot be recomputed."""
        notes = ["a view in Python cannot be recomputed from SQL: only its inputs are compared"]
        mismatches, expected, differences = 0, 0, list[Mismatch]()
        for table in self._request.tables:
            address = self._request.states.get(table)
            if address is None:
                notes.append(f"the state of {table} that the view was given is not at hand")
                continue
            state = self._state(table)
            selected = self._request.columns.get(table)
            read = [
                c for c in state.seen if selected is None or c.column in {*selected, *state.key}
            ]
            state.require_exact(self._database, [c.column for c in read])
            columns = [(c.column, logged_type(c.type)) for c in read]
            self._read_served("served", address, columns, state.key)
            seen = state.as_seen(self._database)
            comparison = self._comparison(seen, columns, state.key, {})
            apart, rows = comparison.run()
            mismatches, expected = mismatches + apart, expected + rows
            differences += self._located(
                comparison.differences(self._request.max_differences), [state]
            )
        notes += self._left_out_notes()
        return self._report(
            verified=False if mismatches else None,
            rows_expected=expected,
            mismatches=mismatches,
            differences=differences[: self._request.max_differences],
            notes=notes,
            ranges=[],
        )

    def unverified(self, why: str) -> VerifyReport:
        """Return the report without a verdict, with the reason."""
        return self._report(
            verified=None, rows_expected=0, mismatches=0, differences=[], notes=[why], ranges=[]
        )

    def infinities(self, why: str) -> str:
        """Return which rows have infinite dates or timestamps, if these are why it is not verified.

        All columns that the view reads are searched: which of them failed is not known.
        """
        if INFINITE not in why or self._request.sql is None:
            return ""
        states = [self._evidence.state(table) for table in self._request.tables]
        types = {
            state.table: {c.column: logged_type(c.type) for c in state.seen} for state in states
        }
        read = columns_read(self._request.sql, types)
        return "".join(
            f"; {line}"
            for state in states
            for line in infinite(self._database, state, read[state.table])
        )

    def _state(self, table: TableName) -> TableState:
        state = self._evidence.state(table)
        if (taken := self._evidence.taken(table)) is not None:
            self._taken[table] = taken
        return state

    def _read_served(
        self, name: str, address: Address, columns: Sequence[tuple[str, Type]], key: Sequence[str]
    ) -> None:
        with self._stages.of("served"):
            self._served += read_served(self._database, name, address, columns, key)

    def _taken_away(self, address: Address | None) -> LeftOutRows:
        """Remove the rows that the sink reports as left out from the expected rows."""
        if address is None:
            return LeftOutRows()
        return take_left_out(
            self._database, address, self._columns, self._request.key,
            at_most=self._request.left_out_at_most,
        )  # fmt: skip

    def _order(self, table: str, bags: Mapping[str, BagPlaces]) -> None:
        """Sort the lists of a table whose order Spark leaves open."""
        kinds = dict(self._columns)
        for name in bags:
            column = next(kind for kind in kinds if kind.lower() == name.lower())
            value = ordered(quoted(column), column, kinds[column], bags)
            self._database.execute(f"UPDATE {quoted(table)} SET {quoted(column)} = {value}")

    def _comparison(
        self,
        expected: str,
        columns: Sequence[tuple[str, Type]],
        key: Sequence[str],
        floats: Mapping[str, Equality],
    ) -> Comparison:
        return Comparison(
            self._database,
            expected=expected,
            served="served",
            columns=columns,
            key=key,
            floats=floats,
            share=self._request.share,
        )

    def _counted(self, mismatches: int, expected: int) -> tuple[int, list[str]]:
        """Refute a sample by its counts where its rows do not."""
        apart = abs(expected - self._served)
        if self._request.mode != "sample" or apart <= mismatches:
            return mismatches, []
        return apart, [f"the counts differ by {apart}, outside the sample"]

    def _check_key(self, floats: Mapping[str, Equality]) -> None:
        """Refuse a key with a computed float: it may differ a little, so rows would not match."""
        for name, kind in self._columns:
            if name in self._request.key and floats[name] is Equality.NEAR and kind.holds_float:
                raise UnverifiableError(computed_float(name))

    def _notes(self, evaluated: Evaluated) -> list[str]:
        floats = evaluated.floats
        near = sorted(
            n for n, kind in self._columns if floats[n] is Equality.NEAR and kind.holds_float
        )
        notes = []
        if near:
            notes.append(
                f"computed floats compared within a relative {RELATIVE_TOLERANCE:g}: "
                f"{', '.join(near)}"
            )
        if evaluated.bags:
            names = ", ".join(sorted(evaluated.bags))
            notes.append(f"lists compared whatever their order, which Spark leaves open: {names}")
        notes += self._left_out_notes()
        if self._request.mode == "sample":
            notes.append(
                f"a sample: {self._request.share:.1%} of the keys by value, all of them by count"
            )
        return notes

    def _left_out_notes(self) -> list[str]:
        return [
            f"{count:,} records of {table} cannot be read: their rows are left out"
            for table in self._request.tables
            if (count := self._evidence.left_out(table))
        ]

    def _located(
        self, differing: Sequence[Mismatch], states: Sequence[TableState]
    ) -> list[Mismatch]:
        """Add the place on the log where a row comes from one record of one table."""
        whole = [
            state for state in states if len(states) == 1 and state.key == self._request.key
        ] or ([] if self._request.sql is not None else list(states))
        if not whole:
            return list(differing)
        return [replace(row, offset=self._offset(whole[0], row.key)) for row in differing]

    def _offset(self, state: TableState, key: Mapping[str, str]) -> str | None:
        if set(key) != set(state.key):
            return None
        where = " AND ".join(f"CAST({quoted(name)} AS VARCHAR) = ?" for name in key)
        row = first_row(
            self._database,
            f"SELECT {PARTITION_COLUMN}, {OFFSET_COLUMN} FROM {quoted(state.base)} WHERE {where}",
            list(key.values()),
        )
        return None if row is None else f"{state.topic}:{row[0]}:{row[1]}"

    def _report(
        self,
        *,
        verified: bool | None,
        rows_expected: int,
        mismatches: int,
        differences: Sequence[Mismatch],
        notes: Sequence[str],
        ranges: Sequence[Mapping[str, object]],
    ) -> VerifyReport:
        request, frontier, taken = self._request, self._request.frontier, self._taken.values()
        notes = [*notes, *(taken_state.note for taken_state in taken if taken_state.note)]
        topics = [t for table in request.tables if (t := frontier.topic_of(table)) is not None]
        complete_from = {
            str(one.state.table): str(one.complete_from)
            for one in taken
            if one.complete_from is not None
        }
        notes += [
            f"a history: no version of {table} is missing from LSN {lsn} on"
            for table, lsn in complete_from.items()
        ]
        certificate: dict[str, Any] = {
            "view": request.view,
            "verified": verified,
            "mode": request.mode,
            "share": request.share,
            "frontier": {"epoch": frontier.epoch, "lsn": str(frontier.lsn), "ts": frontier.ts_us},
            "slot": frontier.slot,
            "system_id": frontier.system_id,
            "ends": {topic: list(frontier.ends.get(topic, ())) for topic in topics},
            "other_frontiers": [_place(other, own) for other, own in beside(frontier, topics)],
            "declared": [
                topic
                for table in request.tables
                if self._evidence.is_declared(table)
                and (topic := frontier.topic_of(table)) is not None
            ],
            "records_read": {taken_state.state.topic: taken_state.records for taken_state in taken},
            "goes_on_from": {
                taken_state.state.topic: dict(taken_state.since)
                for taken_state in taken
                if taken_state.since
            },
            "choices": {
                str(t.state.table): dict(t.state.choices) for t in taken if t.state.choices
            },
            "complete_from": complete_from,
            "records_left_out": sum(self._evidence.left_out(t) for t in request.tables),
            "sql_sha256": hashlib.sha256((request.sql or "").encode()).hexdigest(),
            "left_out": list(self._left_out.keys),
            "sink": None if request.address is None else request.address.sink,
            "keys": None if request.sent is None else request.sent.rows.num_rows,
            "key": list(request.key),
            "columns": [list(column) for column in request.schema],
            "rows_expected": rows_expected,
            "rows_served": self._served,
            "mismatches": mismatches,
            "notes": list(notes),
            "ranges": list(ranges),
            "hash": self._hash,
            "by": {"duckdb": duckdb.__version__},
        }
        return VerifyReport(
            view=request.view,
            verified=verified,
            rows_expected=rows_expected,
            rows_served=self._served,
            mismatches=mismatches,
            differences=tuple(differences),
            notes=tuple(notes),
            certificate=certificate,
        )
