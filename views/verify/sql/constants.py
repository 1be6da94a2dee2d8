"""Arguments that have to be constants of a kind for a function to mean the same in both engines."""

from __future__ import annotations

import re

from sqlglot import exp

from views.base.spark_sql import shown

_TIME_MARK = re.compile(r"%-?[YymdHIMSjbBaAp]")
_DATE_MARKS = re.compile(r"(%-?[Ymd]|strict|[^%\w])*")
_PLAIN_PATH = re.compile(r"\$(?:\.[A-Za-z_]\w*|\[\d+\])+")
_NO_PATTERN = re.compile(r"[\w ,;:/=@#%&~'\"<>!_-]+")


def unchecked(  # noqa: C901, PLR0911, PLR0912 - one for each function
    node: exp.Func,
) -> str | None:
    """Return the reason why a function is not known to be the same for these arguments, or None."""
    match node:
        case exp.Ceil() | exp.Floor() if node.args.get("decimals") is not None:
            return "a number of places is not checked: round() has one"
        case exp.Substring() if not _is_count(node.args.get("start"), least=1):
            return "only a constant start from 1 means the same"
        case exp.Substring() if isinstance(node.args.get("length"), exp.Neg):
            return "PostgreSQL takes no negative length"
        case exp.Left() | exp.Right() if not _is_count(node.expression):
            return "only a constant length from 0 means the same"
        case exp.Repeat() if not _is_count(node.args.get("times")):
            return "only a constant number from 0 means the same"
        case exp.StrPosition() if node.args.get("position") or not _text(node.args.get("substr")):
            return "only a constant text, and no start, means the same"
        case exp.RegexpSplit() if node.args.get("limit") or not _is_plain(node.expression):
            return "only a constant text without signs of patterns is checked"
        case exp.DateDiff() if node.args.get("unit") is not None:
            sides = ", ".join(shown(side.this) for side in (node.this, node.expression))
            return f"with a unit it is not checked: write datediff({sides}), which counts days"
        case exp.SHA2() if node.text("length") != "256":
            return "only 256 bits are checked"
        case exp.JSONExtract() | exp.JSONExtractScalar() if not _PLAIN_PATH.fullmatch(
            path_of(node)
        ):
            return "only a constant path of names and places is checked"
        case exp.TsOrDsToDate() if (form := node.text("format")) and not _DATE_MARKS.fullmatch(
            form
        ):
            return "only y, M and d are checked in its pattern, as in 'yyyy-MM-dd'"
        case exp.TimeToStr() if not _is_known_pattern(node.args["format"].name):
            return "its pattern has letters that are not checked"
        case _:
            return None


def path_of(node: exp.JSONExtract | exp.JSONExtractScalar) -> str:
    """Return the path of an extraction as it is written, or an empty text."""
    path = node.expression
    return path.sql("spark").strip("'") if isinstance(path, exp.JSONPath) else _text(path)


def _is_known_pattern(pattern: str) -> bool:
    rest = _TIME_MARK.sub("", pattern.replace("strict", ""))  # sqlglot's mark of two digits
    return "%" not in rest and not any(letter.isalpha() for letter in rest.replace("T", ""))


def _text(node: exp.Expr | None) -> str:
    return node.name if isinstance(node, exp.Literal) and node.is_string else ""


def _is_plain(node: exp.Expr | None) -> bool:
    return _NO_PATTERN.fullmatch(_text(node)) is not None


def _is_count(node: exp.Expr | None, *, least: int = 0) -> bool:
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return is_number and node is not None and int(node.name) >= least
