"""Refreshes beside rebuilds: one per cent of a table's keys change, at random places.

The log holds a copy of the table and some updates of each row, as one does that has lived for a
while. All runs are in one process whose Spark is warm. Two views are measured: the rows of the
table, and groups of them; once written whole by each refresh, and once by deletion vectors, both
without a proof; and once with one: of rebuilds from the start of the log, of refreshes from what
was proved before.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks import orders
from benchmarks.chart import kept
from benchmarks.figures import say
from benchmarks.line import POSTGRES, Line
from benchmarks.machine import Noise, about, cpu_s
from benchmarks.order_log import Size
from changelog.config import load_project
from changelog.stack.stack import Stack
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.project.catalog import catalog_of
from views.rebuild.rebuild import RebuildRun
from views.rebuild.result.report import ViewResult

_SHARE = 100  # one row of so many changes
_VIEWS = {
    "rows": "-- key: id\nSELECT * FROM orders",
    "groups": "-- key: customer_id\n"
    "SELECT customer_id, count(*) AS orders, sum(amount) AS amount FROM orders "
    "GROUP BY customer_id",
}
_MARKED = "_marked"
"""Ends the name of the same view where refreshes use deletion vectors."""
_PROVED = "_verified"
"""Ends the name of the same view where every run is proved."""
_MODES = {RowsSource.START: VerifyMode.FULL, RowsSource.REFRESH: VerifyMode.CHANGED}


@dataclass(frozen=True)
class Cost:
    """What one run took, in seconds, of its clock and of the CPU."""

    wall_s: float
    cpu_s: float


class Runs:
    """Rebuilds and refreshes of the views of a project, and what they cost."""

    def __init__(self, project: Path, servers: list[int]) -> None:
        """Take the project's folder, and the processes of the servers, whose CPU does not count."""
        self._project, self._servers = project, servers
        self._costs: dict[tuple[str, RowsSource], list[Cost]] = defaultdict(list)
        self._proofs: dict[tuple[str, RowsSource], list[Mapping[str, float]]] = defaultdict(list)

    def run(self, view: str, source: RowsSource, *, counts: bool = True) -> None:
        """Do it once; the first of a kind is for warming up."""
        project = load_project(
            self._project, overrides={"rebuild.deletion_vectors": view.endswith(_MARKED)}
        )
        verify = _MODES[source] if view.endswith(_PROVED) else VerifyMode.NONE
        settings = RebuildSettings(project=project, verify=verify, source=source)
        specs = catalog_of(project).load_all([view])
        began, spent = time.monotonic(), self._cpu_s()
        outcome = RebuildRun(settings, Stages(Console(quiet=True))).run(specs)
        if outcome.error is not None:
            raise outcome.error
        (result,) = outcome.results
        cost = Cost(time.monotonic() - began, self._cpu_s() - spent)
        say(f"{view} {source.value}: {cost.wall_s:.2f} s, CPU {cost.cpu_s:.2f} s, {_told(result)}")
        if counts:
            self._costs[view, source].append(cost)
            proofs = (report.certificate["stages"] for report in result.reports.values())
            self._proofs[view, source].extend(proofs)

    def _cpu_s(self) -> float:
        """Return the CPU seconds of this process and of Spark, its workers counted."""
        return cpu_s(os.getpid()) - sum(map(cpu_s, self._servers))

    def medians(self) -> dict[str, float]:
        """Return the medians, and the shares of a refresh in a rebuild."""
        told = {}
        for (view, source), costs in self._costs.items():
            told[f"{view}_{source.value}_s"] = _median(each.wall_s for each in costs)
            told[f"{view}_{source.value}_cpu_s"] = _median(each.cpu_s for each in costs)
        for (view, source), proofs in self._proofs.items():
            for stage in dict.fromkeys(stage for proof in proofs for stage in proof):
                name = f"{view}_{source.value}_{stage.replace(' ', '_')}_s"
                told[name] = _median(proof.get(stage, 0.0) for proof in proofs)
        for view in [view for view, source in self._costs if source is RowsSource.REFRESH]:
            for what in ("s", "cpu_s"):
                start = told[f"{view.removesuffix(_MARKED)}_start_{what}"]
                told[f"{view}_share_{what}"] = round(told[f"{view}_refresh_{what}"] / start, 3)
        return told


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def _told(result: ViewResult) -> str:
    stages = ", ".join(f"{name} {taken:.1f}" for name, taken in result.seconds.items())
    proofs = [report.certificate for report in result.reports.values()]
    proof = "".join(f"; {each['records_read']} proved in {each['stages']}" for each in proofs)
    return f"{result.records_read} records, {result.origin} ({stages}{proof})"


def measured(
    *, runs: int, rows: int, updates: int, of: Collection[str] = tuple(_VIEWS)
) -> dict[str, float]:
    """Measure refreshes of one per cent of a table's keys beside rebuilds; returns medians.

    Args:
        runs: of each kind; one more goes before.
        rows: of the table.
        updates: how often each row was updated before.
        of: the views that are measured, among `rows` and `groups`.
    """
    whole = {name: text for name, text in _VIEWS.items() if name in of}
    proved = {f"{name}{_PROVED}": text for name, text in whole.items()}
    views = whole | proved | {f"{name}{_MARKED}": text for name, text in whole.items()}
    with (
        tempfile.TemporaryDirectory(prefix="bench-refresh-") as folder,
        Stack(Path(folder) / "stack", postgres_settings=POSTGRES) as stack,
    ):
        Path(folder).chmod(0o755)
        line = Line(stack, Path(folder), "bench")
        servers = [pid for part in stack.status() if (pid := part.pid)]
        noise = Noise(servers)
        (line.project / "views").mkdir()
        for name, text in views.items():
            (line.project / "views" / f"{name}.sql").write_text(text, encoding="utf-8")
        orders.make(line.dsn, rows)
        line.drained(rows, rows)
        line.settle()
        for _ in range(updates):
            orders.update_in_one(line.dsn, rows)
            line.drained(rows, rows)
            line.settle()
        found = Runs(line.project, servers)
        for number in range(runs + 1):
            for view in whole | proved:
                found.run(view, RowsSource.START, counts=number > 0)
        for view in views:
            found.run(view, RowsSource.REFRESH, counts=False)
        for number in range(runs * len(views) + 1):
            changed = orders.update_some(line.dsn, one_of=_SHARE, first=number)
            line.drained(changed, changed)
            line.settle()
            # The first one reads the log; what it read is stored then for the others.
            names = deque(views)
            names.rotate(-number)
            for view in names:
                is_first = view == names[0]
                found.run(view, RowsSource.REFRESH, counts=is_first and number > 0)
        line.forget()
        return {**found.medians(), "noise": round(noise.share(), 3)}


def main(
    runs: Annotated[int, typer.Option(help="Runs of each kind; the medians are told.")] = 3,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = orders.ROWS,
    updates: Annotated[int, typer.Option(help="How often each row was updated before.")] = 2,
    views: Annotated[str, typer.Option(help="Which views, with commas between.")] = "rows,groups",
    out: Annotated[
        Path | None, typer.Option(help="JSON file of `benchmarks.replay` to bring up to date.")
    ] = None,
) -> None:
    """Measure rebuilds and refreshes."""
    logging.getLogger("changelog").setLevel(logging.ERROR)
    told = measured(runs=runs, rows=rows, updates=updates, of=views.split(","))
    if out is not None:
        size = Size(records=rows * (updates + 1), live=rows)
        kept(out, {"sizes": {size.label: {"live_keys": rows, "refresh": {**told, "runs": runs}}}})
    print(json.dumps({**told, "rows": rows, "updates": updates, "runs": runs, **about()}))


if __name__ == "__main__":
    typer.run(main)
