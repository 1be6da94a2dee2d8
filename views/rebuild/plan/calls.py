"""Functions of Spark's SQL in DataFusion's: for each the arguments that it may have, and its text.

Dates and moments go as whole days and microseconds to functions of our own
(`views.rebuild.local.functions`), which refuse the ones outside of the years 1 to 9999. So a value
for which the engines may differ is an error, and the view is computed by Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from sqlglot import exp

from views.rebuild.plan.kinds import (
    INTEGERS,
    MOST_DIGITS,
    NUMBER,
    NUMBER_TEXT,
    class_of,
    classes,
    decimal_of,
    is_constant_text,
    is_count,
    is_day,
    is_double,
    is_list,
    is_plain_round,
    is_quotient,
    is_whole,
    other_arguments,
    sizes_of,
)

DType = exp.DataType.Type
_CLOCK, _MOMENT = "Timestamp(Microsecond, None)", 'Timestamp(Microsecond, Some("UTC"))'
_TIMES = {"clock": _CLOCK, "moment": _MOMENT}
_ZONED = {DType.TIMESTAMP, DType.TIMESTAMPTZ, DType.TIMESTAMPLTZ}
_TEXTS = {DType.TEXT, DType.VARCHAR}
_OF_NULL = {
    *INTEGERS, *_TEXTS, *_ZONED,
    DType.TIMESTAMPNTZ, DType.DATE, DType.BOOLEAN, DType.DOUBLE, DType.DECIMAL,
}  # fmt: skip
_MOST_PLACES = 6
"""Decimal places up to which Java writes no exponent."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_FORMAT = re.compile(r"(%Y|%[mdHMS]strict|[-/:. ,])+")
"""Patterns of yyyy, MM, dd, HH, mm and ss, in the form that sqlglot gives them."""
_PATTERN = re.compile(
    r"\^?(?:(?:[\w \-,/:;@#'\"=<>%&!~]|\\[.*+?()|{}\[\]^$\\/-]|\[\^?(?:[\w ,/:;@#.]|\w-\w)+\])"
    r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?)+(?:\\z)?",
    re.ASCII,
)
"""Regular expressions that Java and Rust read alike: of letters, classes and repetitions."""
_PARTS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "DOY", "HOUR", "MINUTE", "SECOND"}
_OF_CLOCKS = {"HOUR", "MINUTE", "SECOND"}
_PART_CALLS: Mapping[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.WeekOfYear: "WEEK",
    exp.Day: "DAY",
    exp.DayOfMonth: "DAY",
    exp.DayOfWeek: "DOW",
    exp.DayOfYear: "DOY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
}
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_MONTHS = {"MONTH": 1, "YEAR": 12}
_MICROS = {
    "WEEK": 7 * 86_400_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}
_SPARE = {"is_left", "safe", "coalesce", "flatten", "ignore_nulls", "big_int"}
"""Arguments of sqlglot's that change nothing in a call that is taken."""

_KINDS: Mapping[str, Callable[[exp.Expr], bool]] = {
    "text": lambda node: class_of(node) == "text",
    "number": lambda node: class_of(node) == NUMBER,
    "whole": is_whole,
    "double": is_double,
    "constant": is_constant_text,
    "letters": lambda node: is_constant_text(node) and bool(node.name),
    "count": is_count,
    "place": lambda node: is_count(node) and int(node.name) > 0,
}
"""The check of an argument, by its kind: "count" is a constant from 0, "place" one from 1."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function that has the same arguments in both engines."""

    name: str  # in DataFusion, or of our own
    arguments: Mapping[str, str]  # by sqlglot's names for them, in order, what each may be

    def why_not(self, node: exp.Expr) -> str | None:
        if other_arguments(node, {*self.arguments, *_SPARE}):
            return "it has other arguments than are taken"
        for argument, kind in self.arguments.items():
            value = node.args.get(argument)
            if not isinstance(value, exp.Expr) or not _KINDS[kind](value):
                return f"one of its arguments is no {kind}"
        return None

    def written(self, node: exp.Expr) -> exp.Expr:
        return _call(self.name, *(node.args[argument] for argument in self.arguments))


_FUNCTIONS: Mapping[type[exp.Expr], _Function] = {
    exp.Length: _Function("character_length", {"this": "text"}),
    exp.Upper: _Function("in_capitals", {"this": "text"}),
    exp.Lower: _Function("in_small_letters", {"this": "text"}),
    exp.Left: _Function("left", {"this": "text", "expression": "count"}),
    exp.Right: _Function("right", {"this": "text", "expression": "count"}),
    exp.Replace: _Function(
        "replace", {"this": "text", "expression": "letters", "replacement": "constant"}
    ),
    exp.Translate: _Function("translated", {"this": "text", "from_": "constant", "to": "constant"}),
    exp.Reverse: _Function("reverse", {"this": "text"}),
    exp.Repeat: _Function("repeat", {"this": "text", "times": "count"}),
    exp.SplitPart: _Function(
        "split_part", {"this": "text", "delimiter": "letters", "part_index": "place"}
    ),
    exp.StrPosition: _Function("strpos", {"this": "text", "substr": "constant"}),
    exp.StartsWith: _Function("starts_with", {"this": "text", "expression": "text"}),
    exp.EndsWith: _Function("ends_with", {"this": "text", "expression": "text"}),
    exp.Contains: _Function("contains", {"this": "text", "expression": "text"}),
    exp.Ascii: _Function("ascii", {"this": "text"}),
    exp.MD5: _Function("md5", {"this": "text"}),
    exp.Abs: _Function("abs", {"this": "number"}),
    exp.Rint: _Function("rounded_to_even", {"this": "double"}),
    exp.Sqrt: _Function("sqrt", {"this": "double"}),
}
OWN = re.compile(
    r"(quotient|rounded|ceiled|floored|sign)(_\d+)+|(part|truncated)_[a-z]+|rounded_to_even|divided"
    r"|in_capitals|in_small_letters|translated|padded_left|padded_right|whole_number|json_text"
    r"|micros_of_day|day_of_micros|day_of_parts|moved|moved_day|days_between"
    r"|formatted|date_text|time_text|list_has|has_all|arrays_overlap|label_place"
)
"""Names of the functions of `views.rebuild.local.functions`."""
_ANONYMOUS = (
    *("quotient", "octet_length", "get", "make_date"),
    *("has_all", "arrays_overlap", "label_place"),
)
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "btrim"}
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
_WRAPPERS = (
    exp.JSONPath,
    exp.JSONPathRoot,
    exp.JSONPathKey,
    exp.JSONPathSubscript,
    exp.Interval,
    exp.TimeStrToTime,
)
"""Parts of calls: the check of the call covers them."""


def own_types() -> dict[type[exp.Expr], dict[str, Any]]:
    """Return rules for the types of functions that sqlglot does not know."""
    return {
        exp.SplitPart: {"returns": DType.VARCHAR},
        exp.Rint: {"returns": DType.DOUBLE},
        exp.Mod: {"annotator": _set_remainder},
        exp.Div: {"annotator": _set_quotient},
        exp.TimestampTrunc: {"returns": DType.TIMESTAMPTZ},
        exp.Year: {"returns": DType.INT},
        exp.WeekOfYear: {"returns": DType.INT},
        exp.Extract: {"annotator": _set_type},
        exp.Anonymous: {"annotator": _set_type},
        exp.Round: {"annotator": _set_type},
        exp.Ceil: {"annotator": _set_type},
        exp.Floor: {"annotator": _set_type},
    }


def _set_type(annotator: Any, node: exp.Expr) -> exp.Expr:  # noqa: ANN401 - sqlglot's
    kind: Any = DType.UNKNOWN
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if (digits := decimal_of(node)) is not None:
        kind = exp.DataType.build(f"DECIMAL({digits[0]}, {digits[1]})")
    elif name == "octet_length" or isinstance(node, exp.Extract):
        kind = DType.INT
    elif name == "make_date":
        kind = DType.DATE
    elif name in {"has_all", "arrays_overlap"}:
        kind = DType.BOOLEAN
    elif name == "label_place":
        kind = DType.INT
    elif name == "get" and (listed := node.expressions[0].type) is not None:
        inner = listed.expressions
        kind = inner[0] if listed.this == DType.ARRAY and len(inner) == 1 else kind
    annotator._set_type(node, kind)
    return node


def _set_quotient(annotator: Any, node: exp.Div) -> exp.Expr:  # noqa: ANN401 - sqlglot's
    annotator._set_type(node, DType.DOUBLE if _are_doubles(node) else DType.UNKNOWN)
    return node


def _set_remainder(annotator: Any, node: exp.Mod) -> exp.Expr:  # noqa: ANN401 - sqlglot's
    if not _are_whole(node):
        return _set_type(annotator, node)
    kinds = [side.type.this for side in (node.left, node.right) if side.type is not None]
    annotator._set_type(node, max(kinds, key=[*INTEGERS].index))
    return node


def is_call(node: exp.Expr) -> bool:
    """Tell whether a node is one of the calls that `why_not` checks."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _ANONYMOUS
    if isinstance(node, _ARITHMETIC):
        return _is_moved(node) or _is_of_integers(node)
    return type(node) in _FUNCTIONS or type(node) in _PART_CALLS or type(node) in _SPECIAL


def why_not(node: exp.Expr) -> str | None:
    """Return the obstacle to a call; None if it is taken."""
    if isinstance(node, _ARITHMETIC):
        is_taken = _is_of_integers(node) or (_is_moved(node) and _step_of(node))
        return None if is_taken else "only a constant interval, added to a timestamp"
    if isinstance(node, exp.Anonymous):
        return None if _is_taken(node) else "it is computed by Spark"
    if type(node) in _PART_CALLS:
        is_taken = _has_part(_PART_CALLS[type(node)], node.this)
        return None if is_taken else "only of a date, or a time without a zone"
    if type(node) in _SPECIAL:
        return None if _SPECIAL[type(node)][0](node) else "its arguments are of another kind"
    return _FUNCTIONS[type(node)].why_not(node)


def written(node: exp.Expr) -> exp.Expr:
    """Return an accepted call in DataFusion's SQL; the arguments move into it."""
    if isinstance(node, _ARITHMETIC):
        return _moved(node) if _is_moved(node) else _checked(node)
    if isinstance(node, exp.Anonymous):
        return _anonymous(node)
    if type(node) in _PART_CALLS:
        return _part(_PART_CALLS[type(node)], node.this)
    if type(node) in _SPECIAL:
        return _SPECIAL[type(node)][1](node)
    return _FUNCTIONS[type(node)].written(node)


def is_part(node: exp.Expr) -> bool:
    """Tell whether a node is a part of a call that `why_not` checks as a whole."""
    return isinstance(node, _WRAPPERS)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _cast(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kind))


def _arrow(node: exp.Expr, kind: str) -> exp.Expr:
    return _call("arrow_cast", node, exp.Literal.string(kind))


def _number(number: int) -> exp.Expr:
    return _cast(exp.Literal.string(str(number)), "BIGINT")


def _day_number(node: exp.Expr) -> exp.Expr:
    return _arrow(node, "Int32")


def _micros(node: exp.Expr) -> exp.Expr:
    """Return a date or a time as microseconds since 1970."""
    if class_of(node) == "date":
        return _call("micros_of_day", _day_number(node))
    return _arrow(node, "Int64")


def _date(days: exp.Expr) -> exp.Expr:
    return _arrow(days, "Date32")


# Calls without a class of sqlglot's


def _is_taken(node: exp.Anonymous) -> bool:  # noqa: PLR0911 - one for each call
    match node.name.lower(), node.expressions:
        case "quotient", _:
            return is_quotient(node)
        case "octet_length", [text]:
            return class_of(text) == "text"
        case "get", [_, place]:
            return node.type is not None and class_of(node) is not None and is_count(place)
        case "has_all" | "arrays_overlap", [*lists]:
            return len(lists) == len("lm") and all(map(is_list, lists))
        case "label_place", [text, exp.Array() as labels]:
            return class_of(text) == "text" and all(map(is_constant_text, labels.expressions))
        case "make_date", [*parts]:
            return len(parts) == len("ymd") and all(map(is_whole, parts))
        case _:
            return False


def _anonymous(node: exp.Anonymous) -> exp.Expr:
    match node.name.lower():
        case "quotient":
            one, other, *sizes = node.expressions
            name = "_".join(["quotient", *(size.name for size in sizes)])
            return _call(
                name, _decimal_cast(one, sizes[0].name), _decimal_cast(other, sizes[1].name)
            )
        case "get":
            place = exp.Literal.number(int(node.expressions[1].name) + 1)
            return _call("array_element", node.expressions[0], place)
        case "make_date":
            return _date(_call("day_of_parts", *(_cast(e, "BIGINT") for e in node.expressions)))
        case "has_all" | "arrays_overlap" as name:
            return _call(name, *map(_texts_of, node.expressions))
        case "label_place" as name:
            labels = json.dumps([label.name for label in node.expressions[1].expressions])
            return _call(name, node.expressions[0], exp.Literal.string(labels))
        case name:
            return _call(name, *node.expressions)


def _texts_of(node: exp.Expr) -> exp.Expr:
    return _arrow(node, "List(Utf8)")


def _decimal_cast(node: exp.Expr, scale: str) -> exp.Expr:
    return _cast(node, f"DECIMAL({MOST_DIGITS}, {scale})")


# Numbers


def _is_of_integers(node: exp.Binary | exp.Neg) -> bool:
    """Tell whether integers are computed with: DataFusion lets them overflow in silence."""
    sides = [node.this] if isinstance(node, exp.Neg) else [node.left, node.right]
    return node.type is not None and node.type.this in INTEGERS and all(map(is_whole, sides))


def _checked(node: exp.Binary | exp.Neg) -> exp.Expr:
    """Return a sum, difference or product of integers that is an error where it does not fit."""
    kind = node.type
    assert kind is not None  # noqa: S101 - see `_is_of_integers`
    wider = "DECIMAL(19, 0)" if kind.this == DType.BIGINT else "BIGINT"
    if isinstance(node, exp.Neg):
        return exp.Cast(this=exp.Neg(this=_cast(node.this, wider)), to=kind.copy())
    sides = [_cast(side, wider) for side in (node.left, node.right)]
    return exp.Cast(this=type(node)(this=sides[0], expression=sides[1]), to=kind.copy())


def _rounded(node: exp.Expr) -> exp.Expr:
    digits = decimal_of(node.this) or (0, 0)
    name = f"rounded_{digits[1]}_{node.args['decimals'].name}"
    return _call(name, _decimal_cast(node.this, str(digits[1])))


def _is_limit(node: exp.Expr) -> bool:
    return decimal_of(node.this) is not None and not other_arguments(node, {"this"})


def _limit(node: exp.Expr) -> exp.Expr:
    digits = decimal_of(node.this) or (0, 0)
    name = "ceiled" if isinstance(node, exp.Ceil) else "floored"
    return _call(f"{name}_{digits[1]}", _decimal_cast(node.this, str(digits[1])))


def _sign(node: exp.Expr) -> exp.Expr:
    digits = decimal_of(node.this) or (0, 0)
    return _call(f"sign_{digits[1]}", _decimal_cast(node.this, str(digits[1])))


def _whole_quotient(node: exp.Binary) -> exp.Expr:
    sides = [_cast(side, "BIGINT") for side in (node.left, node.right)]
    return exp.Paren(this=exp.Div(this=sides[0], expression=sides[1], typed=True))


def _are_whole(node: exp.Binary) -> bool:
    return is_whole(node.left) and is_whole(node.right)


def _are_doubles(node: exp.Binary) -> bool:
    return all(is_whole(side) or is_double(side) for side in (node.left, node.right))


def _divided(node: exp.Binary) -> exp.Expr:
    return _call("divided", *(_cast(side, "DOUBLE") for side in (node.left, node.right)))


def _are_alike(node: exp.Expr) -> bool:
    kinds = classes(node.this, *node.expressions)
    return len(kinds) == 1 and not kinds & {None, "boolean"}


# Texts


def _is_trim(node: exp.Expr) -> bool:
    letters = node.args.get("expression")
    return (
        class_of(node.this) == "text"
        and (letters is None or _KINDS["letters"](letters))
        and not other_arguments(node, {"this", "position", "expression"})
    )


def _trim(node: exp.Expr) -> exp.Expr:
    name = _TRIMS[str(node.args.get("position") or "BOTH").upper()]
    return _call(name, node.this, node.args.get("expression") or exp.Literal.string(" "))


def _is_pad(node: exp.Expr) -> bool:
    fill = node.args.get("fill_pattern")
    return class_of(node.this) == "text" and is_count(node.expression) and is_constant_text(fill)


def _pad(node: exp.Expr) -> exp.Expr:
    name = "padded_left" if node.args.get("is_left") else "padded_right"
    return _call(name, node.this, _cast(node.expression, "BIGINT"), node.args["fill_pattern"])


def _is_substring(node: exp.Expr) -> bool:
    length = node.args.get("length")
    return (
        class_of(node.this) == "text"
        and _KINDS["place"](node.args["start"])
        and (length is None or is_whole(length))
    )


def _substring(node: exp.Expr) -> exp.Expr:
    length = node.args.get("length")
    rest = () if length is None else (_cast(length, "BIGINT"),)
    return _call("substr", node.this, node.args["start"], *rest)


def _are_texts(node: exp.Expr) -> bool:
    return classes(*node.expressions) == {"text"}


def _in_a_row(node: exp.Expr) -> exp.Expr:
    """Return texts put together by ||, which is null where one of them is, as Spark's concat is."""
    one, *others = node.expressions
    for other in others:
        one = exp.DPipe(this=one, expression=other)
    return exp.Paren(this=one)


def _is_plain_pattern(node: exp.Expr) -> bool:
    pattern = node.expression
    return (
        class_of(node.this) == "text"
        and is_constant_text(pattern)
        and _PATTERN.fullmatch(pattern.name) is not None
        and not other_arguments(node, {"this", "expression"})
    )


def _is_plain_ilike(node: exp.Expr) -> bool:
    pattern = node.expression
    return (
        class_of(node.this) == "text"
        and is_constant_text(pattern)
        and pattern.name.isascii()
        and "\\" not in pattern.name
    )


def _ilike(node: exp.Expr) -> exp.Expr:
    pattern = exp.Literal.string(node.expression.name.lower())
    letters, negate = _call("in_small_letters", node.this), node.args.get("negate")
    return exp.Like(this=letters, expression=pattern, negate=negate)


def _json_steps(node: exp.Expr) -> list[str | int] | None:
    """Return the names and numbers of a path into JSON, or None where it has other parts."""
    steps: list[str | int] = []
    for step in getattr(node.expression, "expressions", [None]):
        match step:
            case exp.JSONPathRoot():
                pass
            case exp.JSONPathKey() if isinstance(step.this, str):
                steps.append(step.this)
            case exp.JSONPathSubscript() if isinstance(step.this, int) and step.this >= 0:
                steps.append(step.this)
            case _:
                return None
    return steps or None


def _json_text(node: exp.Expr) -> exp.Expr:
    return _call("json_text", node.this, exp.Literal.string(json.dumps(_json_steps(node))))


# Dates and times


def _has_part(part: str, value: exp.Expr) -> bool:
    return part in _PARTS and (
        class_of(value) == "clock" or (class_of(value) == "date" and part not in _OF_CLOCKS)
    )


def _part(part: str, value: exp.Expr) -> exp.Expr:
    return _call(f"part_{part.lower()}", _micros(value))


def _unit_of(node: exp.Expr) -> str:
    return node.args["unit"].name.upper() if node.args.get("unit") is not None else ""


def _is_truncated(node: exp.Expr) -> bool:
    return _unit_of(node) in _UNITS and class_of(node.this) in {"clock", "moment"}


def _truncated(node: exp.Expr) -> exp.Expr:
    return _arrow(_call(f"truncated_{_unit_of(node).lower()}", _micros(node.this)), _MOMENT)


def _truncated_day(node: exp.Expr) -> exp.Expr:
    micros = _call(f"truncated_{_unit_of(node).lower()}", _micros(node.this))
    return _date(_call("day_of_micros", micros))


def _is_moved(node: exp.Expr) -> TypeGuard[exp.Add | exp.Sub]:
    """Tell whether an interval is added or subtracted."""
    return isinstance(node, exp.Add | exp.Sub) and isinstance(node.right.unnest(), exp.Interval)


def _step_of(node: exp.Binary) -> tuple[int, int] | None:
    """Return the months and the microseconds that are added to a timestamp, or None."""
    step = node.right.unnest()
    count = step.this
    if class_of(node.left) not in _TIMES or not is_constant_text(count):
        return None
    unit = str(step.args.get("unit")).upper().removesuffix("S")
    if not count.name.isdigit() or len(count.name) > _MOST_PLACES:
        return None
    number = int(count.name) * (-1 if isinstance(node, exp.Sub) else 1)
    if unit in _MONTHS:
        return number * _MONTHS[unit], 0
    return (0, number * _MICROS[unit]) if unit in _MICROS else None


def _moved(node: exp.Binary) -> exp.Expr:
    numbers = map(_number, _step_of(node) or ())
    kind = _TIMES[class_of(node.left) or ""]
    return _arrow(_call("moved", _micros(node.left), *numbers), kind)


def _moved_day(node: exp.Expr) -> exp.Expr:
    number = _cast(node.expression, "BIGINT")
    return _date(_call("moved_day", _day_number(node.this), number))


def _inner(node: exp.Expr) -> exp.Expr:
    """Return an argument without the conversion that sqlglot puts around it."""
    return node.this if isinstance(node, exp.TimeStrToTime) else node


def _in_years(node: exp.Expr) -> exp.Expr:
    """Return a date or a time as microseconds, with an error outside of the years 1 to 9999."""
    return _call("moved", _micros(node), _number(0), _number(0))


def _day_of(node: exp.Expr) -> exp.Expr:
    if class_of(node.this) == "date":
        return exp.Paren(this=node.this)
    return _date(_call("day_of_micros", _micros(node.this)))


def _formatted(node: exp.Expr) -> exp.Expr:
    return _call(
        "formatted",
        _micros(_inner(node.this)),
        exp.Literal.string(node.args["format"].name.replace("strict", "")),
    )


def _between_days(node: exp.Expr) -> exp.Expr:
    sides = [_day_number(_day_of(side)) for side in (node.this, node.expression)]
    return _call("days_between", *sides)


def _are_days(node: exp.Expr) -> bool:
    sides = (node.this, node.expression)
    return not other_arguments(node, {"this", "expression"}) and all(
        isinstance(side, exp.TsOrDsToDate) and class_of(side.this) in {"date", "clock"}
        for side in sides
    )


# Casts


def _is_time(node: exp.Expr) -> bool:
    """Tell whether a node is a text that is a time in its full form."""
    if not is_constant_text(node) or not _TIME.fullmatch(node.name):
        return False
    try:
        return datetime.fromisoformat(node.name).year > 0
    except ValueError:
        return False


def _is_taken_cast(node: exp.Cast) -> bool:
    """Tell whether a cast keeps the value, rounds it as both engines do, or is an error."""
    if node.args.get("safe") or node.args.get("format"):  # null where a value does not fit
        return False
    value, target, kind = node.this, node.to.this, class_of(node.this)
    if is_day(node):
        return True
    if isinstance(value, exp.Null):
        return target in _OF_NULL
    if target in _TEXTS:
        digits = (0, 0) if is_whole(value) else decimal_of(value)
        is_plain = kind == NUMBER and digits is not None and digits[1] <= _MOST_PLACES
        return is_plain or kind in {"text", "boolean", "date", "clock"}
    if target == DType.DECIMAL:
        is_known = decimal_of(value) is not None or isinstance(value.unnest(), exp.Sign)
        return sizes_of(node.to) is not None and is_known
    return {
        **dict.fromkeys(
            INTEGERS,
            _is_of_whole(value)
            or kind in {"boolean", "text"}
            or isinstance(value.unnest(), exp.Rint),
        ),
        DType.BOOLEAN: is_whole(value) or kind == "boolean",
        DType.DOUBLE: _is_number(value) or is_double(value, real=True),
        DType.ARRAY: is_list(value) and [k.this for k in node.to.expressions] == [DType.TEXT],
        DType.DATE: kind in {"date", "clock"},
        DType.TIMESTAMPNTZ: kind in {"date", "clock", "moment"} or _is_time(value),
        **dict.fromkeys(_ZONED, kind in {"date", "clock", "moment"} or _is_time(value)),
    }.get(target, False)


def _is_number(node: exp.Expr) -> bool:
    """Tell whether a node is a number, or the text of a constant one."""
    is_text = is_constant_text(node) and NUMBER_TEXT.fullmatch(node.name) is not None
    return is_text or is_whole(node) or decimal_of(node) is not None


def _is_of_whole(node: exp.Expr) -> bool:
    if is_whole(node):
        return True
    digits = decimal_of(node)
    return digits is not None and digits[1] == 0


def _written_cast(node: exp.Cast) -> exp.Expr:  # noqa: PLR0911 - one for each type
    """Return a cast that is taken."""
    value, target, kind = node.this, node.to.this, class_of(node.this)
    if isinstance(value, exp.Null) or is_day(node):
        times = {DType.TIMESTAMPNTZ: _CLOCK, **dict.fromkeys(_ZONED, _MOMENT)}
        return _arrow(value, times[target]) if target in times else exp.Cast(**node.args)
    if target in _TEXTS:
        named = {"date": "date_text", "clock": "time_text"}
        if kind in named:
            return _call(named[kind], _micros(value))
        return exp.Cast(this=value, to=node.to)
    if target in INTEGERS and kind == "text":
        return exp.Cast(this=_call("whole_number", value), to=node.to)
    if target == DType.DOUBLE and not is_whole(value) and decimal_of(value) is not None:
        # By its digits: DataFusion would divide, and round twice.
        return exp.Cast(this=_cast(value, "TEXT"), to=node.to)
    if target == DType.ARRAY:
        return _texts_of(value)
    if target == DType.DECIMAL:
        return exp.Cast(this=_at_most(value, (sizes_of(node.to) or (0, 0))[1]), to=node.to)
    if target == DType.DATE:
        return _day_of(node)
    if target == DType.TIMESTAMPNTZ or target in _ZONED:
        arrow = _CLOCK if target == DType.TIMESTAMPNTZ else _MOMENT
        if is_constant_text(value):
            return _arrow(value, arrow)
        return _arrow(_in_years(value), arrow)
    return exp.Cast(this=value, to=node.to)


def _at_most(value: exp.Expr, places: int) -> exp.Expr:
    """Return a number rounded to some places where it has more."""
    digits = decimal_of(value) or (0, 0)
    if digits[1] <= places:
        return value
    return _call(f"rounded_{digits[1]}_{places}", _decimal_cast(value, str(digits[1])))


_SPECIAL: Mapping[type[exp.Expr], tuple[Callable[[Any], bool], Callable[[Any], exp.Expr]]] = {
    exp.Round: (is_plain_round, _rounded),
    exp.Ceil: (_is_limit, _limit),
    exp.Floor: (_is_limit, _limit),
    exp.Sign: (_is_limit, _sign),
    exp.IntDiv: (_are_whole, _whole_quotient),
    exp.Div: (_are_doubles, _divided),
    exp.Mod: (
        lambda node: None not in map(decimal_of, (node.left, node.right)),
        lambda node: exp.Paren(this=exp.Mod(this=node.left, expression=node.right)),
    ),
    exp.Greatest: (_are_alike, lambda node: _call("greatest", node.this, *node.expressions)),
    exp.Least: (_are_alike, lambda node: _call("least", node.this, *node.expressions)),
    exp.Substring: (_is_substring, _substring),
    exp.Concat: (_are_texts, _in_a_row),
    exp.ConcatWs: (
        lambda node: _are_texts(node) and is_constant_text(node.expressions[0]),
        lambda node: _call("concat_ws", *node.expressions),
    ),
    exp.Trim: (_is_trim, _trim),
    exp.Pad: (_is_pad, _pad),
    exp.RegexpLike: (
        _is_plain_pattern,
        lambda node: _call("regexp_like", node.this, node.expression),
    ),
    exp.ILike: (_is_plain_ilike, _ilike),
    exp.JSONExtractScalar: (
        lambda node: class_of(node.this) == "text" and _json_steps(node) is not None,
        _json_text,
    ),
    exp.ArraySize: (
        lambda node: is_list(node.this),
        lambda node: _cast(_call("cardinality", node.this), "INT"),
    ),
    exp.Array: (
        lambda node: classes(*node.expressions) in ({NUMBER}, {"text"}),
        lambda node: _call("make_array", *node.expressions),
    ),
    exp.ArrayContains: (
        lambda node: is_list(node.this) and class_of(node.expression) in {NUMBER, "text"},
        lambda node: _call("list_has", _texts_of(node.this), exp.cast(node.expression, "TEXT")),
    ),
    exp.Nullif: (
        lambda node: class_of(node.this) == class_of(node.expression) is not None,
        lambda node: _call("nullif", node.this, node.expression),
    ),
    exp.Extract: (
        lambda node: _has_part(node.name.upper(), node.expression),
        lambda node: _part(node.name, node.expression),
    ),
    exp.TimestampTrunc: (_is_truncated, _truncated),
    exp.DateTrunc: (
        lambda node: _unit_of(node) in _UNITS[:4] and class_of(node.this) == "date",
        _truncated_day,
    ),
    exp.TsOrDsAdd: (
        lambda node: (
            class_of(node.this) == "date"
            and is_whole(node.expression)
            and _unit_of(node) in {"", "DAY"}
        ),
        _moved_day,
    ),
    exp.DateDiff: (_are_days, _between_days),
    exp.TsOrDsToDate: (lambda node: class_of(node.this) in {"date", "clock"}, _day_of),
    exp.TimeToStr: (
        lambda node: (
            class_of(_inner(node.this)) in {"date", "clock"}
            and is_constant_text(node.args.get("format"))
            and _FORMAT.fullmatch(node.args["format"].name) is not None
        ),
        _formatted,
    ),
    exp.UnixMicros: (
        lambda node: class_of(node.this) == "moment",
        lambda node: _in_years(node.this),
    ),
    exp.Cast: (_is_taken_cast, _written_cast),
}
