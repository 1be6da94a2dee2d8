"""The report of a run of cases for people: a line for each, and a table of differences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from views.cases.differences import CaseDifference, plain
from views.cases.run import EngineResult, Result

_MOST = 20


def tell_result(out: Console, result: Result) -> None:
    """Print one case: a line, and below it the differences."""
    word = Text("passed" if result.passed else "FAILED", "green" if result.passed else "bold red")
    by = ", ".join(outcome.engine for outcome in result.told)
    out.print(word, Text(f"{result.view}: {result.case}"), Text(f"({by})", "dim"), soft_wrap=True)
    for outcome, whose in _shared(result):
        if outcome.problem:
            out.print(Text(f"  {whose}: {outcome.problem}"), soft_wrap=True)
        elif outcome.differences:
            out.print(_table(outcome, whose))


def summary(results: list[Result]) -> str:
    """Return a line with the number of passed cases."""
    failed = sum(not result.passed for result in results)
    views = len({result.view for result in results})
    return f"{len(results) - failed} of {len(results)} cases passed, {views} views"


def _shared(result: Result) -> Iterator[tuple[EngineResult, str]]:
    """Yield each engine's failure with the engine's name, joined where all failures are equal."""
    failed = [outcome for outcome in result.told if not outcome.passed]
    passed = [outcome.engine for outcome in result.told if outcome.passed]
    if len(failed) > 1 and len({(e.problem, repr(e.differences)) for e in failed}) == 1:
        yield failed[0], " and ".join(outcome.engine for outcome in failed)
        return
    for outcome in failed:
        rest = f" alone ({', '.join(passed)} gives what is expected)" if passed else ""
        yield outcome, outcome.engine + rest


def _table(outcome: EngineResult, whose: str) -> Table:
    more = len(outcome.differences) - _MOST
    table = Table(
        title=Text(whose),
        title_justify="left",
        caption=f"and {more} more" if more > 0 else None,
    )
    for name in ("what", "row", "column", "expected", "found"):
        table.add_column(name, overflow="fold")
    for difference in outcome.differences[:_MOST]:
        table.add_row(*map(Text, _cells(difference)))
    return table


def _cells(difference: CaseDifference) -> tuple[str, str, str, str, str]:
    row = ", ".join(f"{name}={_shown(value)}" for name, value in difference.row.items())
    words = {"twice": "key twice", "null": "null in the key"}
    kind = words.get(difference.kind, difference.kind)
    if not difference.column:
        return kind, row, "", "", ""
    return kind, row, difference.column, _shown(difference.expected), _shown(difference.found)


def _shown(value: object) -> str:
    return "null" if value is None else str(plain(value))
