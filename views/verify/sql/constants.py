"""Arguments that must be certain constants for a function to mean the same in both engines."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import sqlglot
from sqlglot import exp

from views.base.spark_sql import SparkSql, shown

_TIME_MARK = re.compile(r"%-?[YymdHIMSjbBaAp]")
DAY_OF_YEAR = "%j%-j"
"""The format into which sqlglot translates `DDD`, whose right one is `%j`. Into `%j` it translates
`DD`, the day of the year with at least two digits, which DuckDB has no format for."""
_LONGER = re.compile(r"%j|%Y%-?[Yy]|%B%-?m|%A%a")
"""Formats into which sqlglot translates patterns of more letters than it knows, such as `yyyyy`."""
_DATE_MARKS = re.compile(r"(%-?[Ymd]|strict|[^%\w])*")
_PLAIN_PATH = re.compile(r'\$(?:\."[\w .:/@#+-]+"|\[\d+\])+')
_REPETITION = r"[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}"
_SIGN = r"\\[!-/:-@\[-`{-~]"
_ONE_OF = rf"\[\^?(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[_ ]|{_SIGN})+\]"
_PART_OF_PATTERN = (
    rf"{_REPETITION}|\[\\s\\S\]|{_ONE_OF}|\\z|{_SIGN}|\(\?:|\)|\||\^|[A-Za-z0-9_ ]|[^\x00-\x7f]"
)
_ALIKE = rf"(?:(?:{_PART_OF_PATTERN})(?!(?<=[*+?}}])[*+?{{]))+"
"""Patterns that Java and RE2 read alike; punctuation stands for itself behind a backslash only."""
_NO_PATTERN = re.compile(r"[\w ,;:/=@#%&~'\"<>!_-]+")


def unchecked(  # noqa: C901, PLR0911, PLR0912 - one for each function
    node: exp.Func,
) -> str | None:
    """Return the reason why a function is not known to be the same for these arguments, or None."""
    match node:
        case exp.Ceil() | exp.Floor() if node.args.get("decimals") is not None:
            return "a number of places is not checked: round() has one"
        case exp.Substring() if _is_before_first(node.args.get("start")):
            return "only a start from 1 means the same"
        case exp.Substring() if isinstance(node.args.get("length"), exp.Neg):
            return "PostgreSQL takes no negative length"
        case exp.Left() | exp.Right() if not _is_count(node.expression):
            return "only a constant length from 0 means the same"
        case exp.Repeat() if not _is_count(node.args.get("times")):
            return "only a constant number from 0 means the same"
        case exp.StrPosition() if node.args.get("position") or not _constant_text(
            node.args.get("substr")
        ):
            return "only a constant text, and no start, means the same"
        case exp.RegexpSplit() if node.args.get("limit") or not _is_plain(node.expression):
            return "only a constant text without signs of patterns is checked"
        case exp.DateDiff() if node.args.get("unit") is not None:
            sides = ", ".join(shown(side.this) for side in (node.this, node.expression))
            return f"with a unit it is not checked: write datediff({sides}), which counts days"
        case exp.SHA2() if node.text("length") != "256":
            return "only 256 bits are checked"
        case exp.ArrayToString() if node.args.get("null") or not _is_text(node.expression):
            return "only a constant text between the elements is checked, and none for nulls"
        case exp.Anonymous() if node.name.lower() == "json_element" and not (
            len(node.expressions) == 2  # noqa: PLR2004 - a document and a path
            and path_of(as_extraction(node))
        ):
            return "only a constant path of names and places is checked"
        case exp.JSONExtract() | exp.JSONExtractScalar() if not path_of(node):
            return "only a constant path of names and places is checked"
        case exp.TsOrDsToDate() if (form := node.text("format")) and not _DATE_MARKS.fullmatch(
            form
        ):
            return "only y, M and d are checked in its pattern, as in 'yyyy-MM-dd'"
        case exp.RegexpLike() | exp.RegexpReplace() if not _is_read_alike(node):
            return "only a constant pattern that Java and RE2 read alike is checked"
        case exp.TimeToStr() if not _is_known_pattern(node.args["format"].name):
            return "its pattern has letters that are not checked"
        case _:
            return None


def _is_read_alike(node: exp.RegexpLike | exp.RegexpReplace) -> bool:
    """Tell whether Java and RE2 match the same parts of any text."""
    pattern = _constant_text(node.expression)
    if not re.fullmatch(_ALIKE, pattern):
        return False
    if isinstance(node, exp.RegexpLike):
        return True
    new = node.args.get("replacement")
    parts = re.findall(_PART_OF_PATTERN, pattern)
    behind = [*parts[1:], ""]
    repeated = [part for part in parts if re.fullmatch(_REPETITION, part)]
    return (
        isinstance(new, exp.Literal)
        and not {*"$\\"} & {*new.name}
        and not {"(?:", ")", "|"} & {*parts}
        and len(repeated) <= 1
        and any(
            part not in {"^", r"\z", *repeated} and not after.startswith(("*", "?", "{0"))
            for part, after in zip(parts, behind, strict=True)
        )
    )


def as_extraction(node: exp.Anonymous) -> exp.JSONExtractScalar:
    """Return `json_element(j, '$.a[0]')` as the extraction that it is."""
    document, path = node.expressions
    called = sqlglot.parse_one(f"get_json_object(j, {path.sql('spark')})", read=SparkSql)
    assert isinstance(called, exp.JSONExtractScalar)  # noqa: S101 - sqlglot's class for it
    called.set("this", document.copy())
    return called


def path_of(node: exp.JSONExtract | exp.JSONExtractScalar) -> str:
    """Return the path of an extraction in DuckDB's form; an empty text if it is no plain one."""
    steps = node.expression.expressions if isinstance(node.expression, exp.JSONPath) else []
    path = "".join(map(_step_of, steps))
    return path if _PLAIN_PATH.fullmatch(path) else ""


def _step_of(step: exp.Expr) -> str:
    match step:
        case exp.JSONPathRoot():
            return "$"
        case exp.JSONPathKey():
            return f'."{step.this}"'
        case exp.JSONPathSubscript():
            return f"[{step.this}]"
        case _:
            return "?"


def _is_known_pattern(pattern: str) -> bool:
    plain = pattern.replace("strict", "")  # sqlglot's mark of two digits
    plain = plain.replace(DAY_OF_YEAR, "")
    rest = _TIME_MARK.sub("", plain)
    has_letters = any(letter.isalpha() for letter in rest.replace("T", ""))
    return not (_LONGER.search(plain) or "%" in rest or has_letters)


def _is_text(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _constant_text(node: exp.Expr | None) -> str:
    """Return a constant text; an empty one if it is not constant."""
    return node.name if node is not None and _is_text(node) else ""


def _is_plain(node: exp.Expr | None) -> bool:
    return _NO_PATTERN.fullmatch(_constant_text(node)) is not None


def _is_before_first(node: exp.Expr | None) -> bool:
    """Tell whether a constant is not a start from 1; other values are checked row by row."""
    return isinstance(node, exp.Literal | exp.Neg | None) and not _is_count(node, least=1)


def _is_count(node: exp.Expr | None, *, least: int = 0) -> bool:
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return is_number and node is not None and int(node.name) >= least


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DAY}([ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?)?"
MOMENTS = {"date": _DAY, "timestamp": _MOMENT, "timestamp_ntz": _MOMENT}
"""The texts that both engines cast to the same day or moment."""
_OFFSET = re.compile(
    f"{_DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}(:[0-9]{{2}})?)"
)
"""A timestamp with its offset from UTC, as PostgreSQL prints it; DuckDB ignores the offset."""


def as_moment(text: str, kind: str) -> str | None:
    """Return a text that both engines read as the same moment; None if there is none."""
    if re.fullmatch(MOMENTS[kind], text):
        return text if is_real(text) else None
    if kind != "timestamp" or not _OFFSET.fullmatch(text):
        return None
    try:
        utc = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return utc.replace(tzinfo=None).isoformat(sep=" ")


def is_real(text: str) -> bool:
    """Tell whether a text is a real day and time: no 30th of February, no year 0, no hour 25."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def no_moment(text: str, kind: str) -> str:
    """Return the reason why a constant is not proved as a date or moment, and what to write."""
    past = re.fullmatch(rf"({_DAY})\s+BC", text.strip(), re.IGNORECASE)
    if past and kind == "date" and (day := _before_christ(past[1])):
        return (
            f"'{text}' is read otherwise by Spark, which counts years before the first as 0, -1 "
            f"and so on: write {day}"
        )
    if text.strip().lower() in {"infinity", "-infinity"}:
        end = "9999-12-31" if kind == "date" else "9999-12-31 23:59:59.999999"
        first = "0001-01-01" if kind == "date" else "0001-01-01 00:00:00"
        instead = first if text.strip().startswith("-") else end
        return (
            f"Spark knows no infinite {kind}: write '{instead}', or whichever {kind} lies beyond "
            "those that count"
        )
    if re.fullmatch(_MOMENT, text):
        return f"there is no such {kind} as '{text}'"
    form = "YYYY-MM-DD" if kind == "date" else "YYYY-MM-DD hh:mm:ss"
    return (
        f"'{text}' is no {kind} that both engines read: write it as {form}, with a year from 0001 "
        "to 9999" + ("" if kind == "date" else ", in UTC and without a zone")
    )


def _before_christ(text: str) -> str | None:
    """Return Spark's expression of a day BC, like `make_date(-43, 3, 15)`."""
    year, month, day = map(int, text.split("-"))
    try:
        date(2000 if year % 4 == 1 else 2001, month, day)
    except ValueError:
        return None
    return f"make_date({1 - year}, {month}, {day})" if year else None
