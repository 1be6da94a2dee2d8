"""The views of a project as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from views.generations.history import REFUTED, HistoryRow
from views.project.spec import ViewSpec, short_name
from views.rebuild.plan.analysis import Analysis


def catalog_table(
    specs: Sequence[ViewSpec],
    serving: Mapping[str, HistoryRow] | None,
    analyses: Mapping[str, Analysis],
) -> Table:
    """Return the views of a project as a table: serving generation, proof and refresh of each.

    `serving`: by view, the history's row of the serving generation; None if not known. `analyses`:
    how views are proved and refreshed, where that is known.
    """
    table = Table()
    columns = ["view", "kind", "reads", "key", "sinks"]
    columns += [] if serving is None else ["serves"]
    for column in [*columns, "description", *(["proof", "refresh"] if analyses else [])]:
        table.add_column(column)
    for spec in specs:
        table.add_row(
            spec.name,
            spec.kind,
            _reads(spec),
            ", ".join(spec.key),
            ", ".join(spec.sinks),
            *([] if serving is None else [_serves(serving.get(spec.name))]),
            spec.description,
            *(analyses[spec.name].words() if spec.name in analyses else []),
        )
    return table


def _serves(row: HistoryRow | None) -> str:
    if row is None:
        return "nothing yet"
    refuted = "refuted: " if row.state == REFUTED else ""
    return f"{refuted}{row.generation}, LSN {row.lsn}"


def _reads(spec: ViewSpec) -> str:
    tables = ", ".join(map(short_name, spec.tables))
    return f"{tables} (by view {', '.join(spec.views)})" if spec.views else tables
