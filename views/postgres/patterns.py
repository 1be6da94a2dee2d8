r"""Translates regular expressions of PostgreSQL that Java and RE2 match the same way. Pure.

Accepted are conditions on single characters by their code points: plain characters, `.`, lists in
brackets, repetitions, alternatives, the two ends. Classes that depend on a locale (`\d`, `\w`,
`[:alpha:]`) are not. All three engines then agree whether a text matches. They agree which part of
it matches only if there is no alternative and at most one repetition: PostgreSQL takes the longest
match, the others the first alternative.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import punctuation

_REPEATED = re.compile(r"[*+?]|\{(\d{1,3})(,\d{0,3})?\}")
_RANGE = re.compile(r"([0-9])-([0-9])|([a-z])-([a-z])|([A-Z])-([A-Z])")
_MOST = 255
"""The highest count of a repetition in PostgreSQL."""
_ANY = r"[\s\S]"
_END = r"\z"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for Java and RE2.

    Attributes:
        text: the pattern.
        is_plain: whether all engines match the same part of a text, which is never empty.
        is_once: whether a text has at most one match, because it is anchored at an end.
    """

    text: str
    is_plain: bool
    is_once: bool


def pattern_of(postgres_pattern: str, *, any_case: bool = False) -> Pattern | None:
    r"""Return a pattern for Java and RE2, or None if they may match differently.

    >>> pattern_of("^a.[0-9]+$").text
    '^a[\\s\\S][0-9]+\\z'
    """
    parts: list[str] = []
    rest, depth, atom, fixed, repeated, choice = postgres_pattern, 0, False, 0, 0, False
    while rest:
        if (repetition := _REPEATED.match(rest)) is not None:
            low, high = repetition[1], (repetition[2] or "").lstrip(",")
            if not atom or _REPEATED.match(rest[repetition.end() :]):
                return None
            if max(int(low or 0), int(high or 0)) > _MOST or (high and int(high) < int(low)):
                return None
            parts.append(repetition[0])
            repeated += 1
            fixed -= repetition[0][0] in "*?" or low == "0"
            rest, atom = rest[repetition.end() :], False
            continue
        part, length = _one(rest, any_case=any_case)
        if not length:
            return None
        depth += (part == "(?:") - (part == ")")
        empty = not parts or parts[-1] in {"(?:", "|"}
        if depth < 0 or (part in {")", "|"} and empty):
            return None
        choice |= part in {"(?:", "|"}
        atom = part not in {"(?:", "|", "^", _END}
        fixed += atom and part != ")"
        parts.append(part)
        rest = rest[length:]
    if depth or not parts or parts[-1] == "|":
        return None
    ends = not choice and (parts[0] == "^" or parts[-1] == _END)
    inner = {"^", _END} & {*parts[1:-1]}
    return Pattern(
        "".join(parts), not choice and repeated <= 1 and fixed > 0 and not inner, ends and not inner
    )


def _one(  # noqa: PLR0911 - one for each kind
    rest: str, *, any_case: bool
) -> tuple[str, int]:
    """Translate the first part of a pattern, not a repetition; return its length too, or 0."""
    first = rest[0]
    match first:
        case "^" | "|" | ")":
            return first, 1
        case "$":
            return _END, 1
        case ".":
            return _ANY, 1
        case "(":
            plain = 3 if rest.startswith("(?:") else 1
            return ("(?:", plain) if not rest[plain:].startswith(("?", "*", ")")) else ("", 0)
        case "[":
            return _list(rest, any_case=any_case)
        case "\\":
            second = rest[1:2]
            return (f"\\{second}", 2) if _is_punctuation(second) else ("", 0)
        case "{" | "}" | "]":
            return "", 0
        case _ if not first.isprintable() or (any_case and not first.isascii()):
            return "", 0
        case _ if any_case and first.isalpha():
            return f"[{first.lower()}{first.upper()}]", 1
        case _:
            return (f"\\{first}" if _is_punctuation(first) else first), 1


def _list(rest: str, *, any_case: bool) -> tuple[str, int]:
    """Translate a list in brackets; return its length too, or 0 if it is not accepted."""
    place = 2 if rest.startswith("[^") else 1
    built, start = rest[:place], place
    while place < len(rest):
        if rest[place] == "]":
            return (f"{built}]", place + 1) if place > start else ("", 0)
        span = _RANGE.match(rest, place)
        if span is not None:
            one, last = span[0][0], span[0][-1]
            if one > last:
                return "", 0
            built += span[0]
            if any_case and one.isalpha():
                built += span[0].swapcase()
            place = span.end()
            continue
        letter = rest[place]
        if letter == "\\":
            place += 1
            letter = rest[place : place + 1]
            if not _is_punctuation(letter):
                return "", 0
        elif letter == "[" or (letter == "-" and start < place and rest[place + 1 :][:1] != "]"):
            return "", 0
        if not letter.isascii() or not letter.isprintable() or place + 1 >= len(rest):
            return "", 0
        built += f"\\{letter}" if _is_punctuation(letter) else letter
        if any_case and letter.isalpha():
            built += letter.swapcase()
        place += 1
    return "", 0


def _is_punctuation(letter: str) -> bool:
    return letter != "" and letter in punctuation.replace("_", "")
