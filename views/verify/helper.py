"""A helper of the verifier: jobs on standard input, the rows that come of them on its output.

A job is a generator of tables with its arguments. What it gives is sent as it comes; at its end
comes what it returns, or the error that ended it.
"""

from __future__ import annotations

from changelog import child
from changelog.contract.errors import ChangelogError
from views.verify.faults import SetApart
from views.verify.job import Done, Work


def main() -> None:
    """Serve until the input ends."""
    for work, arguments in child.requests():
        try:
            end = _sent(work(*arguments))
        except ChangelogError as error:
            child.answer(error)
        else:
            child.answer(Done(end))


def _sent(work: Work) -> SetApart | None:
    """Send the tables of a job; gives what it returns."""
    while True:
        try:
            child.answer(next(work))
        except StopIteration as end:
            found: SetApart | None = end.value
            return found


if __name__ == "__main__":
    main()
