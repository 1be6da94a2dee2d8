"""The rows with values that no type holds, for the error after one of them ended a build."""

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
    """Add the keys of the rows to the error about a value that no type holds.

    The table is read once more for it, of which only their keys are kept.

    Raises:
        FormlessValueError: a view of these tables has met one.
    """
    try:
        yield
    except Exception as error:
        formless = translate(error)
        if not isinstance(formless, FormlessValueError):
            raise
        own = (states.states[table] for table in tables if table in states.states)
        try:
            sentence = next(
                (sentence for state in own if (sentence := _rows(state, str(formless.args[0])))), ""
            )
        except Exception as other:  # the first error is the one to tell
            log.debug("rows are not counted", exc_info=other)
            sentence = ""
        raise FormlessValueError(f"{formless.args[0]}{sentence}", hint=formless.hint) from error


def _rows(state: ReplayedState, message: str) -> str:
    """Return the number and some keys of the rows without a form in an error's column, as text."""
    heads = {name: f'table "{state.table}", column "{name}" (' for name in state.frame.columns}
    column = next((name for name, head in heads.items() if message.startswith(head)), None)
    if column is None or state.rows.formless is None:
        return ""
    bad_rows = state.rows.formless(state.rows.logged).where(F.col("column") == F.lit(column))
    bad_rows.persist()
    try:
        count = bad_rows.count()
        keys = [row["key"] for row in bad_rows.sort("key").limit(_SHOWN).collect()]
    finally:
        bad_rows.unpersist()
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    shown = ", ".join(f"({key})" for key in keys) + (", …" if count > _SHOWN else "")
    return f"; {rows} such a value there: {shown}"
