"""`changelog demo`: the whole line on real servers and real data, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.panel import Panel
from rich.table import Table

from changelog.contract.base.errors import RefutedError
from changelog.runtime.edge import print_json
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption
from changelog.runtime.terminal import console
from views.demo.run import DemoResult, run_demo


@with_examples("`changelog demo --transactions 500` a short one; it needs no servers")
def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Folder for the servers' data and the views.")
    ] = Path(".demo"),
    transactions: Annotated[
        int, typer.Option("--transactions", min=0, help="How many the writer commits.")
    ] = 3000,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line of standard output.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Run the whole line: load flights, capture while a writer works, rebuild three views, prove.

    Starts its own servers on free ports and stops them at the end; the data stays in the folder,
    and a second run goes on from there.
    """
    # Here, since it brings Spark and every sink, and each `changelog` command loads this module.
    for extra in ("spark", "jdk", "stack", "demo"):
        check_extra(extra, "changelog demo")
    from views.demo.rebuild import rebuild_views

    result = run_demo(
        directory.resolve(),
        transactions=transactions,
        rebuild=rebuild_views,
        say=lambda line: console.print(line, highlight=False),
    )
    console.print(_panel(result))
    if as_json:
        print_json(result.to_json())
    if not result.proven:
        raise RefutedError("a view is not proven equal to its source; the table names it")


def _panel(result: DemoResult) -> Panel:
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("view", "left"),
        ("generation", "right"),
        ("records read", "right"),
        ("rows", "right"),
        ("rows/s written", "right"),
        ("certificate", "left"),
    ):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for view in result.rebuilds:
        table.add_row(*_cells(view))
    captured = result.capture["rows_captured"]
    frontier = result.rebuilds[0]["frontier"] if result.rebuilds else {}
    title = f"{captured:,} rows captured, all views at LSN {frontier.get('lsn')}"
    return Panel(table, title=title, subtitle=f"{result.seconds:.0f} seconds", expand=False)


def _cells(view: dict[str, Any]) -> tuple[str, ...]:
    written = max(view["seconds"].get("write", 0.0), 0.001)
    if view["verified"]:
        certificate = "[green]equal to the source, every row[/green]"
    else:
        certificate = f"[red]{view['mismatches']} mismatches[/red]"
    return (
        view["view"],
        str(view["generation"]),
        f"{view['records_read']:,}",
        f"{view['rows']:,}",
        f"{view['rows'] / written:,.0f}",
        certificate,
    )
