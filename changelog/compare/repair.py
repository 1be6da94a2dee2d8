"""`changelog verify --repair`: writes the source's rows over differing ones of a PostgreSQL table.

Each batch of keys is one transaction that first takes a lock on the copy's table against other
writers (readers go on). Under it the copy's rows are looked at: one that is no longer as it was
planned is left to whoever changed it. Then the source's rows are read, and written. So a change
that a writer brings is either older than what is read, or it is applied after the lock, as if the
repair had been a write of the writer's own. A transaction that breaks off leaves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from psycopg2 import extensions, sql

from changelog.compare.document_side import batched
from changelog.compare.plan import ComparePlan
from changelog.compare.postgres import PostgresSide
from changelog.compare.report import key_shown, key_text
from changelog.compare.side import Key, Side
from changelog.compare.watch import KeyStates, rows_of, states_of
from changelog.contract.base.errors import ConfigurationError, SinkError

_BATCH = 100  # keys of one transaction: writers wait for it
_INSTEAD = {
    "parquet": "write the files anew by the program that makes them",
    "duckdb": "run the program that fills the file again",
    "delta": "rebuild the table by the program that fills it, such as `rebuild-view VIEW`",
    "topic": "`changelog resnapshot TABLE` makes a fresh copy of a table of our own log; other "
    "records have to be written by the program that has their schemas",
    "search": "index the documents again by the program that fills it: only that knows their form",
    "cache": "delete the entries, or run the program that fills them: only that knows their form",
}
INSERT, UPDATE, DELETE = "insert", "update", "delete"
CHANGED, AGREES = "changed meanwhile", "agrees by now"


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
        return lines


class Repair:
    """A repair of one table."""

    def __init__(self, source: PostgresSide, target: Side, plan: ComparePlan) -> None:
        """Check that the copy can be repaired.

        Raises ConfigurationError: it is no table, or the source is a standby, whose rows may be
        older than the copy's.
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
        self._source, self._target, self._plan = source, target, plan

    def plan(self, keys: Sequence[Key]) -> RepairPlan:
        """Return the plan for some keys, by their rows as they are now."""
        target = states_of(self._plan, self._target.look(keys))
        source = states_of(self._plan, self._source.look(keys))
        actions: dict[Key, str] = {}
        unplanned: dict[Key, str] = {}
        for key in keys:
            own, other = len(rows_of(source, key)), len(rows_of(target, key))
            if own > 1 or other > 1:
                unplanned[key] = f"left as it is: {own} rows at the source, {other} in the target"
            elif own or other:
                actions[key] = UPDATE if own and other else INSERT if own else DELETE
        return RepairPlan(actions, target, unplanned)

    def carry_out(self, planned: RepairPlan) -> Counter[str]:
        """Write the rows; returns the numbers of keys by what was done with them.

        Raises SourceError, SinkError, ConfigurationError: a row cannot be written; the batches
        before it stay written.
        """
        done: Counter[str] = Counter()
        for keys in batched(planned.actions, _BATCH):
            with self._target.writing() as cursor:
                now = states_of(self._plan, self._target.look(keys))
                rows = self._source.read(keys)
                source = states_of(self._plan, [row for row, _ in rows])
                texts = {row.key: values for row, values in rows}
                outcomes = []
                for key in keys:
                    right = rows_of(source, key)
                    if now.get(key) != planned.states.get(key) or len(right) > 1:
                        outcomes.append(CHANGED)
                    elif right == rows_of(now, key):
                        outcomes.append(AGREES)
                    else:
                        outcomes.append(self._write(cursor, key, texts.get(key), key in now))
            done.update(outcomes)  # they are committed
        return done

    def _write(
        self,
        cursor: extensions.cursor,
        key: Key,
        texts: Sequence[str | None] | None,
        is_there: bool,
    ) -> str:
        """Write one row, or delete it."""
        relation, where = self._target.relation, self._target.exactly(key)
        named = [(sql.Identifier(c.target), c in self._plan.key) for c in self._plan.columns]
        listed = sql.SQL(", ").join
        if texts is None:
            action, statement = DELETE, sql.SQL("DELETE FROM {} WHERE {}").format(relation, where)
        elif is_there:
            action, command = UPDATE, sql.SQL("UPDATE {} SET {} WHERE {}")
            changes = [
                sql.SQL("{} = {}").format(name, sql.Literal(text))
                for (name, is_key), text in zip(named, texts, strict=True)
                if not is_key
            ]
            statement = command.format(relation, listed(changes), where)
        else:
            action, command = (
                INSERT,
                sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})"),
            )
            names, values = [name for name, _ in named], map(sql.Literal, texts)
            statement = command.format(relation, listed(names), listed(values))
        cursor.execute(statement)
        if cursor.rowcount != 1:
            shown = key_text(key_shown(self._plan, key))
            raise SinkError(
                f"{self._target.place}: to {action} {shown} changed {cursor.rowcount} rows, not 1",
                hint="a rule or trigger of the table does something else; nothing of it was kept",
            )
        return action
