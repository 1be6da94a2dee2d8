"""Staged generations: whole in every sink, seen by no reader until they are published.

What marks one is its last row in the history, `staged`: every run that clears up asks there, so
what a killed run left goes and what was put aside on purpose stays. A view has one at most; a
newer one replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.generations.history import ABORTED, GenerationHistory
from views.generations.served import Served
from views.generations.succession import staged


class NothingStagedError(ChangelogError):
    """No generation of a view waits to be published."""


def newest_staged(view: str, history: GenerationHistory) -> int | None:
    """Return the staged generation of a view, or None."""
    numbers = staged(history.states(view))
    return numbers[-1] if numbers else None


def take_away(
    served: Served,
    history: GenerationHistory,
    generations: Sequence[int],
    *,
    note: str,
    steps: Steps = UNSEEN,
) -> None:
    """Remove staged generations from every sink of a view.

    The history says so first: from then on the next run ends what is cut off here.
    """
    steps.more(len(generations) * len(served.sinks))
    for number in generations:
        rows = history.rows([served.view], generation=number)
        history.append([row.again(state=ABORTED, note=note) for row in rows[-1:]])
    for number in generations:
        for name, sink in served.sinks.items():
            steps.begin(f"{served.view} {number} in {name}")
            sink.discard(number)
            steps.done()
