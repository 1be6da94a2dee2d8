"""Decide which views need no new build, since a recent run has built them. Pure.

What counts is when the generation that serves was built, not when readers were moved to it: after a
rollback an old one serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from views.base.config import VerifyMode
from views.generations.history import REFUTED, SEALED, HistoryRow, as_served, is_of_older_epoch
from views.project.definition import changed_declaration
from views.project.spec import ViewSpec


def is_recent(
    spec: ViewSpec,
    rows: Sequence[HistoryRow],
    serving: Mapping[str, int | None],
    since: datetime,
    mode: VerifyMode,
    *,
    epoch: int | None = None,
) -> bool:
    """Tell whether a view serves a generation that was built since a moment, just as asked for.

    `rows`: of the view's history. `serving`: the generation that each sink says it serves; one that
    was removed there is not recent, whatever the history says. `epoch`: of the log, see
    `is_of_older_epoch`.
    """
    served = as_served(rows)
    if served is None or served.state == REFUTED or not served.declaration:
        return False
    built = [row for row in rows if row.generation == served.generation and row.state == SEALED]
    if not built or built[-1].at < since or set(served.sinks) != set(spec.sinks):
        return False
    if {*serving.values()} != {served.generation}:
        return False
    if is_of_older_epoch(rows, served.generation, epoch):
        return False
    return _is_proved(built[-1], mode) and not changed_declaration(
        served.declaration, spec, since="before"
    )


def _is_proved(built: HistoryRow, mode: VerifyMode) -> bool:
    if mode is VerifyMode.NONE:
        return True
    if built.verified is not True:
        return False
    rows = built.rows or 0
    compared = [report.get("rows_expected", 0) for report in built.certificate.values()]
    return mode is VerifyMode.SAMPLE or all(count >= rows for count in compared)
