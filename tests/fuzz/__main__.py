"""`python -m tests.fuzz`: compiles the library with sanitizers, and runs targets on it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

from tests.fuzz.inputs import changed, corpus, line_of
from tests.sanitized import ROOT, VARIABLE, NoSanitizersError, compiled

LAST = "last-input.txt"
_INPUTS = 400
"""Of each target, where no time is given."""


def run_target(name: str, *, seed: int, seconds: float, folder: Path) -> int:
    """Run one target; return how many inputs it got. Each is written down before it is run."""
    from tests.fuzz.targets import TARGETS  # with the library that was asked for

    target, begin = TARGETS[name], corpus(name)
    chance = Random(f"{name}/{seed}")  # noqa: S311 - the same each time
    pool, count, end = list(begin), 0, time.monotonic() + seconds
    while count < len(begin) or (time.monotonic() < end if seconds else count < _INPUTS):
        some = begin[count] if count < len(begin) else changed(chance.choice(pool), pool, chance)
        (folder / LAST).write_text(f"{name}: {line_of(some)}\n", "ascii")
        target(some)
        count += 1
        if chance.randrange(20) == 0:
            pool.append(some)
    return count


def fuzz(environment: Mapping[str, str], *, seed: int, seconds: float, targets: list[str]) -> str:
    """Run targets on a library with sanitizers; return what failed, and on which input."""
    folder = Path(environment[VARIABLE])
    words = [sys.executable, "-m", "tests.fuzz", "--inside", str(folder), "--seed", str(seed)]
    words += ["--seconds", str(seconds), *targets]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, stdout=sys.stderr, stderr=subprocess.PIPE, check=False
    )
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace")
    return f"{said}\nthe input: {(folder / LAST).read_text('ascii')}"


def main() -> int:
    """Fuzz; end with 1 when something failed, and with 2 where there are no sanitizers."""
    named = [path.stem for path in sorted((Path(__file__).parent / "corpus").glob("*.txt"))]
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", default=named, metavar="TARGET")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="of each target")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        import tests.support.sanitized_library  # noqa: F401 - before anything opens the other one

        for name in asked.targets:
            count = run_target(name, seed=asked.seed, seconds=asked.seconds, folder=asked.inside)
            sys.stdout.write(f"{name}: {count} inputs\n")
            sys.stdout.flush()
        return 0
    try:
        environment = compiled()
    except NoSanitizersError as error:
        sys.stderr.write(f"no sanitizers here: {error}\n")
        return 2
    failed = fuzz(environment, seed=asked.seed, seconds=asked.seconds, targets=asked.targets)
    sys.stderr.write(failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
