"""A helper process of the verifier: jobs on standard input, their rows on standard output.

A job is a generator of tables with its arguments. What it gives is sent as it comes; at its end
comes what it returns, or the error that ended it.
"""

from __future__ import annotations

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process import child
from views.verify.processes.job import Done, Work
from views.verify.values.faults import Quarantine


def main() -> None:
    """Serve until the input ends."""
    for work, arguments in child.requests():
        try:
            end = _sent(work(*arguments))
        except ChangelogError as error:
            child.answer(error)
        else:
            child.answer(Done(end))


def _sent(work: Work) -> Quarantine | None:
    """Send the tables of a job; returns what it returns."""
    while True:
        try:
            child.answer(next(work))
        except StopIteration as end:
            quarantine: Quarantine | None = end.value
            return quarantine


if __name__ == "__main__":
    main()
