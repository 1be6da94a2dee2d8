"""The report of a run of cases for people: a line for each, and a table of differences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from views.cases.differences import Difference, plain
from views.cases.run import Result, Told

_MOST = 20


def tell_result(out: Console, result: Result) -> None:
    """Print one case: a line, and below it the differences."""
    word = Text("passed" if result.passed else "FAILED", "green" if result.passed else "bold red")
    by = ", ".join(each.engine for each in result.told)
    out.print(word, Text(f"{result.view}: {result.case}"), Text(f"({by})", "dim"), soft_wrap=True)
    for told, whose in _shared(result):
        if told.problem:
            out.print(Text(f"  {whose}: {told.problem}"), soft_wrap=True)
        elif told.differences:
            out.print(_table(told, whose))


def summary(results: list[Result]) -> str:
    """Say in a line how many cases passed."""
    failed = sum(not result.passed for result in results)
    views = len({result.view for result in results})
    return f"{len(results) - failed} of {len(results)} cases passed, {views} views"


def _shared(result: Result) -> Iterator[tuple[Told, str]]:
    """Yield what engines told and who did, once where all told the same."""
    failed = [each for each in result.told if not each.passed]
    passed = [each.engine for each in result.told if each.passed]
    if len(failed) > 1 and len({(e.problem, repr(e.differences)) for e in failed}) == 1:
        yield failed[0], " and ".join(each.engine for each in failed)
        return
    for each in failed:
        rest = f" alone ({', '.join(passed)} gives what is expected)" if passed else ""
        yield each, each.engine + rest


def _table(told: Told, whose: str) -> Table:
    more = len(told.differences) - _MOST
    table = Table(
        title=Text(whose),
        title_justify="left",
        caption=f"and {more} more" if more > 0 else None,
    )
    for name in ("what", "row", "column", "expected", "found"):
        table.add_column(name, overflow="fold")
    for each in told.differences[:_MOST]:
        table.add_row(*map(Text, _cells(each)))
    return table


def _cells(each: Difference) -> tuple[str, str, str, str, str]:
    row = ", ".join(f"{name}={_shown(value)}" for name, value in each.row.items())
    words = {"twice": "key twice", "null": "null in the key"}
    what = words.get(each.kind, each.kind)
    if not each.column:
        return what, row, "", "", ""
    return what, row, each.column, _shown(each.expected), _shown(each.found)


def _shown(value: object) -> str:
    return "null" if value is None else str(plain(value))
