"""Which rows hold values that no type here holds, once one of them has ended a build."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.rows.relation import TableName
from replay.base.failures import translate
from replay.base.task_faults import FormlessValueError
from replay.result.state import ReplayedState, States

log = logging.getLogger("changelog.views")

_SHOWN = 5


@contextmanager
def counted(states: States, tables: Collection[TableName]) -> Iterator[None]:
    """Add the keys of the rows to the error about a value that no type here holds.

    The table is read once more for it, of which only their keys are kept.

    Raises:
        FormlessValueError: a view of these tables has met one.
    """
    try:
        yield
    except Exception as error:
        known = translate(error)
        if not isinstance(known, FormlessValueError):
            raise
        own = (states.states[table] for table in tables if table in states.states)
        try:
            told = next((told for state in own if (told := _rows(state, str(known.args[0])))), "")
        except Exception as other:  # the first error is the one to tell
            log.debug("rows are not counted", exc_info=other)
            told = ""
        raise FormlessValueError(f"{known.args[0]}{told}", hint=known.hint) from error


def _rows(state: ReplayedState, said: str) -> str:
    """Say how many rows have such a value in the column that an error names, and name some."""
    heads = {name: f'table "{state.table}", column "{name}" (' for name in state.frame.columns}
    column = next((name for name, head in heads.items() if said.startswith(head)), None)
    if column is None or state.rows.formless is None:
        return ""
    found = state.rows.formless(state.rows.logged).where(F.col("column") == F.lit(column))
    found.persist()
    try:
        count = found.count()
        keys = [row["key"] for row in found.sort("key").limit(_SHOWN).collect()]
    finally:
        found.unpersist()
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    shown = ", ".join(f"({key})" for key in keys) + (", …" if count > _SHOWN else "")
    return f"; {rows} such a value there: {shown}"
