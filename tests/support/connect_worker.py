"""`changelog serve`, perhaps with a seeded defect.

`DEFECT`: rows and their places in two transactions. `FORGETS`: a stream of changes begins at the
newest frontier, wherever its client goes on from.
"""

import sys

from changelog.cli import main
from changelog.connect.postgres.target import Target

DEFECT = "--places-are-never-moved"
FORGETS = "--streams-forget-where-they-were"


def seed() -> None:
    """Write rows without their places: as if a process always died between two transactions."""
    whole = Target.write

    def rows_alone(self, asked, moves, *, refuse):
        whole(self, asked, {}, refuse=refuse)

    Target.write = rows_alone  # type: ignore[method-assign]


def forget() -> None:
    """Let each stream begin with what comes next."""
    from views.changes.feed import Feed

    whole = Feed.begin

    def begin(self, since):
        whole(self, None if since and since != "start" else since)

    Feed.begin = begin  # type: ignore[method-assign]


if __name__ == "__main__":
    for defect, seeded in ((DEFECT, seed), (FORGETS, forget)):
        if defect in sys.argv:
            sys.argv.remove(defect)
            seeded()
    main()
