"""A helper process of the verifier: reads calls from standard input, writes results to output."""

from __future__ import annotations

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process import child


def main() -> None:
    """Serve until the input ends."""
    for work, *arguments in child.requests():
        try:
            child.answer(work(*arguments))
        except ChangelogError as error:
            child.answer(error)


if __name__ == "__main__":
    main()
