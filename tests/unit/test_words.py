"""Riddles in docstrings and names without a subject: their number only falls.

A docstring's first line says what the thing is or does, in the words of a plain engineer; a name
says its subject. Who mends some lowers the number here.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = {
    "a question for a noun": (re.compile(r"^(Return|Say|Tell|Note) (what|how|where|why|who)\b"), 0),
    "what for a noun": (re.compile(r"^What "), 0),
    "let": (re.compile(r"^Let "), 0),
    "none without a verb": (re.compile(r"; None (where|when|without)\b"), 0),
    "a pronoun for a noun": (re.compile(r"\b(those|the others|such|another one)\b"), 2),
    "a turn of another language": (
        re.compile(r"\b(makes? of|comes? of|lies?|behind|beside|anew|so many|let go|of before)\b"),
        2,
    ),
}
NAMES = {
    "each": 1,
    "found": 9,
    "said": 0,
    "what": 0,
    "wanted": 0,
    "known": 0,
    "asked": 1,
    "held": 0,
    "given": 4,
    "made": 1,
    "left": 8,
    "told": 1,
}


def firsts(tree: ast.Module) -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    return [text.partition("\n")[0] for text in texts if text]


def names(tree: ast.Module) -> Counter[str]:
    """Count the parameters and assigned variables by name."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += 1
        elif isinstance(node, ast.arg):
            counts[node.arg] += 1
    return counts


def trees() -> Iterator[ast.Module]:
    files = (
        path for name in ("changelog", "replay", "views") for path in ROOT.glob(f"{name}/**/*.py")
    )
    return (ast.parse(path.read_text(encoding="utf-8")) for path in files)


def test_docstrings_begin_plainly_and_names_say_their_subject():
    lines: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for tree in trees():
        counts += names(tree)
        for line in firsts(tree):
            lines.update(kind for kind, (pattern, _) in LINES.items() if pattern.search(line))
    most = {kind: number for kind, (_, number) in LINES.items()} | NAMES
    grown = {
        each: number for each, number in (lines + counts).items() if number > most.get(each, number)
    }
    assert grown == {}


def test_twin_a_riddle_and_a_bare_name_are_counted():
    tree = ast.parse('def f(what):\n    """Return what is left."""\n    found = 1\n')
    assert LINES["a question for a noun"][0].search(firsts(tree)[0])
    assert {*names(tree)} == {"what", "found"}
