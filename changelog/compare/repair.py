"""`changelog verify --repair`: writes the source's rows over differing ones of a PostgreSQL table.

Each batch of keys is one transaction that first takes a lock on the copy's table against other
writers (readers go on), which do not queue behind it while it waits. Under the lock the copy's rows
are looked at: one that is no longer as it was planned is left to whoever changed it. Then the
source's rows are read, and written. So a change that a writer brings is either older than what is
read, or it is applied after the lock, as if the repair had been a write of the writer's own. Rows
that the copy refuses are left out of their batch. A transaction that breaks off leaves nothing; the
ones before it are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg2
from psycopg2 import extensions, sql

from changelog.compare.plan import ComparePlan
from changelog.compare.postgres import PostgresSide
from changelog.compare.report import Report, key_shown, key_text
from changelog.compare.side import Key, Side, SideRow, batched
from changelog.compare.watch import KeyStates, State, normal_row, rows_of, states_of
from changelog.contract.base.errors import ConfigurationError, SinkError

_BATCH = 100  # keys of one transaction: writers wait for it
_FEW = 10  # deletes that need no leave, however small the copy is
_OF_ROWS = {"0A", "22", "23", "44", "P0"}  # classes of errors that a single row may cause
_INSTEAD = {
    "parquet": "write the files anew by the program that makes them",
    "duckdb": "run the program that fills the file again",
    "delta": "rebuild the table by the program that fills it, such as `rebuild-view VIEW`",
    "iceberg": "load the table again by the program that fills it",
    "topic": "`changelog resnapshot TABLE` makes a fresh copy of a table of our own log; other "
    "records have to be written by the program that has their schemas",
    "search": "index the documents again by the program that fills it: only that knows their form",
    "cache": "delete the entries, or run the program that fills them: only that knows their form",
}
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_IN_ORDER = (DELETE, UPDATE, INSERT)  # a row that goes makes room for another one's values
CHANGED, AGREES, REFUSED = "changed meanwhile", "agrees by now", "refused"


def check_repairable(kind: str) -> None:
    """Check that copies of a kind can be repaired.

    Raises ConfigurationError: not by us; the hint says what to do.
    """
    if kind in _INSTEAD:
        raise ConfigurationError(
            f"--repair writes to tables of PostgreSQL, not to a copy of the kind {kind}",
            hint=_INSTEAD[kind],
        )


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """A plan of a repair, by key; nothing has been changed."""

    actions: Mapping[Key, str]  # insert, update, delete
    states: KeyStates  # of the copy, as planned
    unplanned: Mapping[Key, str]  # why a key is left as it is
    refusal: str  # why nothing may be written, if so

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of keys as an object of JSON."""
        return {**Counter(self.actions.values()), "left": len(self.unplanned)}

    def lines(self, plan: ComparePlan, most: int) -> list[str]:
        """Return the lines of the plan for people."""
        counts = Counter(self.actions.values())
        listed = ", ".join(f"{counts[action]:,} to {action}" for action in (INSERT, UPDATE, DELETE))
        lines = [f"repair: {listed}"]
        for key, action in islice({**self.actions, **self.unplanned}.items(), most):
            lines.append(f"  {key_text(key_shown(plan, key))}: {action}")
        return [*lines, f"not allowed: {self.refusal}"] if self.refusal else lines


class _RefusedRowError(Exception):
    """The copy does not take a row; the message is PostgreSQL's."""


@contextmanager
def _savepoint(cursor: extensions.cursor) -> Iterator[None]:
    """Run the body, and undo it if the copy refuses a row.

    Raises _RefusedRowError: it does. Deferred constraints are looked at, too.
    """
    cursor.execute("SAVEPOINT rows")
    try:
        yield
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except psycopg2.Error as error:
        if (error.pgcode or "")[:2] not in _OF_ROWS:
            raise
        cursor.execute("ROLLBACK TO SAVEPOINT rows")
        raise _RefusedRowError(error.diag.message_primary or str(error)) from error
    except _RefusedRowError:
        cursor.execute("ROLLBACK TO SAVEPOINT rows")
        raise
    cursor.execute("RELEASE SAVEPOINT rows")


@dataclass(frozen=True, slots=True)
class _Write:
    """A row that is to be written, or deleted."""

    action: str
    texts: Sequence[str | None]  # as PostgreSQL's input functions take them; none for a delete
    state: State  # the row's, once it is written


class Repair:
    """A repair of one table, and what it has done so far."""

    def __init__(
        self, source: PostgresSide, target: Side, report: Report, *, max_deletes: int | None = None
    ) -> None:
        """Check that the copy can be repaired.

        `report` is of the comparison before; `max_deletes` allows this number of deletes.

        Raises ConfigurationError: it is no table, or the source is a standby, whose rows may be
        older than the copy's, or the source reads the copy.
        """
        if not isinstance(target, PostgresSide) or not target.is_table:
            raise ConfigurationError(
                f"{target.place} is not a table, so it cannot be repaired",
                hint="name the table whose rows it shows",
            )
        if source.notes():
            raise ConfigurationError(
                "the source is a standby, whose rows may be older than the copy's",
                hint="--repair needs the primary",
            )
        if source.reads(target):
            raise ConfigurationError(
                f"the source reads {target.place}: a repair would overwrite the source's own rows",
                hint="name the copy with --target, and the table that is right as the source",
            )
        self.source, self.target, self._plan = source, target, report.plan
        self._rows, self._max_deletes = report.target_rows, max_deletes
        computed = target.computed()
        self._written = [computed.get(c.target) != "generated" for c in self._plan.columns]
        self._set = [
            c.target not in computed and c in self._plan.values for c in self._plan.columns
        ]
        self._always = [computed.get(c.target) == "identity" for c in self._plan.columns]
        self._cascades = target.cascades()
        self._is_empty = not report.source_rows
        # More buckets may differ than were looked at: so many rows more have to go at least.
        self._least = report.target_rows - report.source_rows if report.is_at_least else 0
        if max_deletes is not None:
            self._most_deletes = max_deletes
        elif self._is_empty or self._cascades:
            self._most_deletes = 0
        else:
            self._most_deletes = max(_FEW, report.target_rows // 2)
        self.done: Counter[str] = Counter()
        self.refused: dict[Key, str] = {}  # PostgreSQL's message by key
        self.altered: list[Key] = []  # rows that the copy stores otherwise than they were written

    def plan(self, keys: Sequence[Key]) -> RepairPlan:
        """Return the plan for some keys, by their rows as they are now."""
        target_rows, source_rows = self.target.look(keys), self.source.look(keys)
        target, source = states_of(self._plan, target_rows), states_of(self._plan, source_rows)
        source_of = {row.key: row for row in source_rows}
        target_of = {row.key: row for row in target_rows}
        actions: dict[Key, str] = {}
        unplanned: dict[Key, str] = {}
        for key in keys:
            own, other = len(rows_of(source, key)), len(rows_of(target, key))
            if own > 1 or other > 1:
                unplanned[key] = f"left as it is: {own} rows at the source, {other} in the target"
            elif own and other:
                obstacle = self._obstacle(source_of[key], target_of[key])
                if obstacle:
                    unplanned[key] = f"left as it is: {obstacle}"
                else:
                    actions[key] = UPDATE
            elif own or other:
                actions[key] = INSERT if own else DELETE
        deletes = self.done[DELETE] + max(
            Counter(actions.values())[DELETE], self._least - self.done[DELETE]
        )
        return RepairPlan(actions, target, unplanned, self._refusal(deletes))

    def _obstacle(self, source: SideRow, target: SideRow) -> str:
        """Return the reason why PostgreSQL allows no update that makes a row right, if so."""
        if not any(self._set):
            return "PostgreSQL computes each column that differs"
        texts = zip(
            self._plan.columns,
            self._always,
            normal_row(self._plan, source),
            normal_row(self._plan, target),
            strict=True,
        )
        for column, is_always, own, other in texts:
            if is_always and own != other:
                return (
                    f'PostgreSQL does not allow an update of "{column.target}", which is '
                    "GENERATED ALWAYS AS IDENTITY"
                )
        return ""

    def _refusal(self, deletes: int) -> str:
        if deletes <= self._most_deletes:
            return ""
        rows = f"{deletes:,} of the copy's {self._rows:,} rows would be deleted"
        if self._max_deletes is not None:
            return f"{rows}, more than --max-deletes {self._max_deletes}"
        if self._is_empty:
            return f"{rows}, because the source has no row"
        if self._cascades:
            return f"{rows}, which changes other rows too: {', '.join(self._cascades)}"
        return f"{rows}, more than half"

    def carry_out(self, planned: RepairPlan, stop: Callable[[], bool] = lambda: False) -> None:
        """Write the rows, and count the keys in `done` by the outcome.

        `stop` is asked before each batch.

        Raises SourceError, SinkError, ConfigurationError: the plan is not allowed, or the table
        cannot be written; the batches before it stay written.
        """
        if planned.refusal:
            raise ConfigurationError(
                planned.refusal,
                hint="if that is meant, --max-deletes N allows it; nothing more was written",
            )
        for keys in batched(planned.actions, _BATCH):
            if stop():
                raise SinkError("the repair was stopped by a signal", hint="run it again")
            with self.target.writing() as cursor:
                outcomes, writes = self._decided(planned, keys)
                refused, altered = self._write_all(cursor, writes)
            # They are committed.
            outcomes |= {key: write.action for key, write in writes.items()}
            outcomes |= dict.fromkeys(refused, REFUSED)
            self.done.update(outcomes.values())
            self.refused |= refused
            self.altered += altered

    def _decided(
        self, planned: RepairPlan, keys: Sequence[Key]
    ) -> tuple[dict[Key, str], dict[Key, _Write]]:
        """Return the outcomes of keys that are left as they are, and the rows to be written."""
        now = states_of(self._plan, self.target.look(keys))
        rows = self.source.read(keys)
        source = states_of(self._plan, [row for row, _ in rows])
        texts = {row.key: values for row, values in rows}
        outcomes: dict[Key, str] = {}
        writes: dict[Key, _Write] = {}
        room = self._most_deletes - self.done[DELETE]
        for key in keys:
            right = rows_of(source, key)
            action = UPDATE if key in now else INSERT
            if key not in texts:
                action = DELETE
            if now.get(key) != planned.states.get(key) or len(right) > 1:
                outcomes[key] = CHANGED
            elif right == rows_of(now, key):
                outcomes[key] = AGREES
            elif (action == DELETE and not room) or (action == UPDATE and not any(self._set)):
                outcomes[key] = CHANGED  # planned otherwise, and what it needs now is not allowed
            else:
                room -= action == DELETE
                writes[key] = _Write(action, texts.get(key, ()), right)
        return outcomes, writes

    def _write_all(
        self, cursor: extensions.cursor, writes: Mapping[Key, _Write]
    ) -> tuple[dict[Key, str], list[Key]]:
        """Write a batch; returns why rows are refused, and the keys of rows stored otherwise."""
        pending = sorted(writes, key=lambda key: _IN_ORDER.index(writes[key].action))
        try:
            with _savepoint(cursor):
                return {}, [key for key in pending if not self._write(cursor, key, writes[key])]
        except _RefusedRowError:
            altered: list[Key] = []
        while True:
            refused: dict[Key, str] = {}
            for key in pending:
                try:
                    with _savepoint(cursor):
                        is_stored = self._write(cursor, key, writes[key])
                except _RefusedRowError as error:
                    refused[key] = str(error)
                else:
                    altered += [] if is_stored else [key]
            # A row may be taken once another one has gone, or has given up its value.
            if len(refused) in {0, len(pending)}:
                return refused, altered
            pending = [*refused]

    def _write(self, cursor: extensions.cursor, key: Key, write: _Write) -> bool:
        """Write one row, or delete it; returns whether the copy has it as it was written.

        Raises _RefusedRowError: a rule or trigger does something else.
        """
        relation, where = self.target.relation, self.target.exactly(key)
        listed = sql.SQL(", ").join
        names = [sql.Identifier(column.target) for column in self._plan.columns]
        values = [*zip(names, map(sql.Literal, write.texts), strict=False)]  # none for a delete
        if write.action == DELETE:
            statement = sql.SQL("DELETE FROM {} WHERE {}").format(relation, where)
        elif write.action == UPDATE:
            changes = [
                sql.SQL("{} = {}").format(*pair)
                for pair, is_set in zip(values, self._set, strict=True)
                if is_set
            ]
            command = sql.SQL("UPDATE {} SET {} WHERE {} RETURNING {}")
            statement = command.format(relation, listed(changes), where, self.target.returned)
        else:
            own = [pair for pair, is_own in zip(values, self._written, strict=True) if is_own]
            command = sql.SQL(
                "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({}) RETURNING {}"
            )
            statement = command.format(
                relation,
                listed([name for name, _ in own]),
                listed([value for _, value in own]),
                self.target.returned,
            )
        cursor.execute(statement)
        if cursor.rowcount != 1:
            raise _RefusedRowError(
                f"to {write.action} it changed {cursor.rowcount} rows, not 1: a rule or trigger of "
                "the table does something else"
            )
        if write.action == DELETE:
            return True
        (texts,) = cursor.fetchall()
        width = len(self._plan.key)
        stored = states_of(self._plan, [SideRow(tuple(texts[:width]), tuple(texts[width:]))])
        return rows_of(stored, key) == write.state

    def hint(self, differing: Sequence[Key]) -> str:
        """Return the reason why keys still differ after the repair, if it is one of the copy's."""
        for key in differing:
            if key in self.refused:
                return f"{len(self.refused):,} rows are refused by the copy: {self._refused(key)}"
        altered = next(iter({*differing} & {*self.altered}), None)
        if altered is None:
            return ""
        return (
            "the copy stores another value than was written: a trigger or its type changes it, as "
            f"for {key_text(key_shown(self._plan, altered))}"
        )

    def _refused(self, key: Key) -> str:
        return f"{key_text(key_shown(self._plan, key))}: {self.refused[key]}"

    def counts(self) -> dict[str, int]:
        """Return the numbers of keys by outcome, and of rows that are stored otherwise."""
        outcomes = (INSERT, UPDATE, DELETE, REFUSED, CHANGED, AGREES)
        counts = {outcome.replace(" ", "_"): self.done[outcome] for outcome in outcomes}
        return {**counts, "stored_otherwise": len(self.altered)}

    def to_json(self) -> dict[str, Any]:
        """Return the outcomes as an object of JSON."""
        return {
            "done": dict(self.done),
            "refused": [
                {"key": key_shown(self._plan, key), "why": why} for key, why in self.refused.items()
            ],
            "stored_otherwise": [key_shown(self._plan, key) for key in self.altered],
        }

    def lines(self, most: int, *, before_error: bool) -> list[str]:
        """Return the lines about what was done, for people."""
        done = ", ".join(f"{count:,} {action}" for action, count in self.done.items()) or "nothing"
        lines = [f"repaired{' before the error' * before_error}: {done}"]
        lines += [f"  refused: {self._refused(key)}" for key in islice(self.refused, most)]
        return lines
