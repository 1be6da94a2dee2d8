"""Count the lines of Python, by package and folder; the last line of the output is JSON.

Every line of a tracked file counts: code, docstrings, comments and blank lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("changelog", "replay", "views")


def main() -> None:
    """Print modules and lines of each folder, largest first."""
    words = ["git", "ls-files", "-z", "*.py"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    lines: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for name in filter(None, listed.stdout.split("\0")):
        count = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        parts = Path(name).parts
        for folder in {parts[0], "/".join(parts[: min(2, len(parts) - 1)])}:
            lines[folder] += count
            modules[folder] += 1
    for folder, count in lines.most_common():
        sys.stdout.write(f"{count:8,} lines {modules[folder]:5} modules  {folder}\n")
    tops = {top: lines[top] for top in (*PRODUCT, "tests", "benchmarks", "scripts")}
    total = {"product": sum(lines[top] for top in PRODUCT), **tops}
    sys.stdout.write(json.dumps(total) + "\n")


if __name__ == "__main__":
    main()
