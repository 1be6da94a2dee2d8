"""`changelog serve`, perhaps with a seeded defect: rows and their places in two transactions."""

import sys

from changelog.cli import main
from changelog.connect.postgres.target import Target

DEFECT = "--places-are-never-moved"


def seed() -> None:
    """Write rows without their places: as if a process always died between two transactions."""
    whole = Target.write

    def rows_alone(self, asked, moves, *, refuse):
        whole(self, asked, {}, refuse=refuse)

    Target.write = rows_alone  # type: ignore[method-assign]


if __name__ == "__main__":
    if DEFECT in sys.argv:
        sys.argv.remove(DEFECT)
        seed()
    main()
