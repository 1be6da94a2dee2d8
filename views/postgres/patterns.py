r"""Regular expressions of PostgreSQL that mean the same to Java and RE2. Pure.

Taken is what a pattern asks of single letters, by their code points: letters as they stand, `.`,
lists in brackets, repetitions, alternatives, the two ends. What goes by a locale (`\d`, `\w`,
`[:alpha:]`) is not. Whether a text matches is then one question to all; which part of it does is
so only where no alternative and one repetition at most leave no choice between the longest part,
which PostgreSQL takes, and the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import punctuation

_REPEATED = re.compile(r"[*+?]|\{(\d{1,3})(,\d{0,3})?\}")
_RANGE = re.compile(r"([0-9])-([0-9])|([a-z])-([a-z])|([A-Z])-([A-Z])")
_MOST = 255
_ANY = r"[\s\S]"
_END = r"\z"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as Java and RE2 have it.

    Attributes:
        text: the pattern.
        is_plain: whether it leaves no choice which part of a text it matches, and never none.
        is_once: whether a text matches it once at most, as it stands at an end.
    """

    text: str
    is_plain: bool
    is_once: bool


def pattern_of(written: str, *, any_case: bool = False) -> Pattern | None:
    r"""Return a pattern, or None where it is not known to mean the same.

    >>> pattern_of("^a.[0-9]+$").text
    '^a[\\s\\S][0-9]+\\z'
    """
    parts: list[str] = []
    rest, depth, atom, fixed, repeated, choice = written, 0, False, 0, 0, False
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


def _one(  # noqa: PLR0911 - one for each sign
    rest: str, *, any_case: bool
) -> tuple[str, int]:
    """Return the first part of a pattern that is no repetition, and its length; 0 if unknown."""
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
            return (f"\\{second}", 2) if _is_sign(second) else ("", 0)
        case "{" | "}" | "]":
            return "", 0
        case _ if not first.isprintable() or (any_case and not first.isascii()):
            return "", 0
        case _ if any_case and first.isalpha():
            return f"[{first.lower()}{first.upper()}]", 1
        case _:
            return (f"\\{first}" if _is_sign(first) else first), 1


def _list(rest: str, *, any_case: bool) -> tuple[str, int]:
    """Return a list in brackets, and its length; 0 if it is not known."""
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
            if not _is_sign(letter):
                return "", 0
        elif letter == "[" or (letter == "-" and start < place and rest[place + 1 :][:1] != "]"):
            return "", 0
        if not letter.isascii() or not letter.isprintable() or place + 1 >= len(rest):
            return "", 0
        built += f"\\{letter}" if _is_sign(letter) else letter
        if any_case and letter.isalpha():
            built += letter.swapcase()
        place += 1
    return "", 0


def _is_sign(letter: str) -> bool:
    return letter != "" and letter in punctuation.replace("_", "")
