"""A page of the documents as something to run: its blocks of code in their order.

Every block ```sh, ```python, ```js and ```java runs, unless a comment right before it says
`<!-- not run: why -->`.
A block ```text behind one is what it prints: line by line, in that order, where `…` stands for
anything, and lines of the drawing of tables for blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_DRAWN = re.compile(r"[─-╿|]")

RUN_BY = {
    "sh": "{}",
    "python": "python - <<'END_OF_BLOCK'\n{}END_OF_BLOCK",
    "js": "node --input-type=module - <<'END_OF_BLOCK'\n{}END_OF_BLOCK",
    "java": "cat > ReadView.java <<'END_OF_BLOCK'\n{}END_OF_BLOCK\njava ReadView.java",
}
"""What runs a block in bash, by its kind; other kinds are for reading."""


@dataclass(frozen=True)
class Block:
    """A block of code, with what it prints.

    Attributes:
        kind: `sh`, `python`, …
        text: of it.
        why_not: why it is not run; empty where it is.
        prints: lines that it prints, in order.
    """

    kind: str
    text: str
    why_not: str
    prints: tuple[str, ...]


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    for each in _BLOCK.finditer(page.read_text("utf-8")):
        if each["kind"] == "text" and found and not each["why"]:
            last = found.pop()
            found.append(
                Block(last.kind, last.text, last.why_not, tuple(each["text"].splitlines()))
            )
        else:
            found.append(Block(each["kind"], each["text"], each["why"] or "", ()))
    return found


def script_of(blocks: list[Block]) -> str:
    """Return one script of bash that runs the blocks, and says where each begins."""
    lines = ["set -eo pipefail", "exec 2>&1"]
    for number, block in enumerate(blocks):
        if block.why_not:
            continue
        if block.kind in RUN_BY:
            lines.append(f"printf '\\n@@ %s\\n' {number}")
            lines.append(RUN_BY[block.kind].format(block.text))
    return "\n".join([*lines, "printf '\\n@@ end\\n'", ""])


def printed(output: str) -> Mapping[int, str]:
    """Return what each block of a script's run has printed, by its number."""
    parts = re.split(r"^@@ (\d+|end)\n", output, flags=re.MULTILINE)
    return {int(n): text for n, text in zip(parts[1::2], parts[2::2], strict=True) if n != "end"}


def missing(prints: tuple[str, ...], output: str) -> Iterator[str]:
    """Find the lines that an output should have and has not, each behind the one before."""
    said, place = _plain(output), 0
    for line in prints:
        parts = [re.escape(part) for part in map(_plain, line.split("…")) if part]
        found = re.compile(".*?".join(parts)).search(said, place) if parts else None
        if parts and found is None:
            yield line
        elif found is not None:
            place = found.end()


def _plain(text: str) -> str:
    return " ".join(_DRAWN.sub(" ", text).split())
