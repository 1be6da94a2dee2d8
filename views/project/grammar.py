"""Refuse texts that Spark does not read, or reads otherwise than PostgreSQL and the verifier.

sqlglot's parser takes what many databases write. What Spark's own parser or analyser refuses would
be known after the tables were read, in Spark's words; and where two operators stand side by side
without parentheses, the three bind them differently. Both are said here, with what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokenizer_core import Token, TokenType

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import SparkSql

Refusal = tuple[str, str]
"""Why a text is refused, and what to write."""

_MOST_DIGITS = 38
_BITS = (
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift),
    exp.DPipe,
)
_SUMS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
_COMPARED = (
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    *(exp.Between, exp.In, exp.Like, exp.ILike, exp.Is, exp.Not),
)
_COMPARING = _COMPARED[:8]
_COMPARISON_SIGNS = {
    *(TokenType.EQ, TokenType.NEQ, TokenType.NULLSAFE_EQ, TokenType.LT, TokenType.LTE),
    *(TokenType.GT, TokenType.GTE, TokenType.IS),
}
_RANKED = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
_BESIDE = (exp.Lag, exp.Lead)
_WHOLE_TO_HERE = ("UNBOUNDED", "PRECEDING", "CURRENT ROW")
_PARENTHESES = "put parentheses round the part that is meant to be computed first"
_FIRST_ROWS = (
    "number the rows of a group with row_number() OVER (PARTITION BY … ORDER BY …) in a subquery, "
    "and take those WHERE it is 1"
)
_WITH_TIES = (
    "compute rank() OVER (ORDER BY …) in a subquery, and take the rows WHERE it is at most the "
    "number wanted"
)
_SUBQUERY = "compute it in a subquery with GROUP BY, and join that"


def refuse_unread(path: Path, text: str, query: exp.Query) -> None:
    """Require that Spark reads a query as it is read here."""
    for line, (why, hint) in [*_of_tokens(text), *_of_nodes(query)]:
        place = f"{path.name}:{line}" if line else path.name
        raise ViewError(f"{place}: {why}", hint=hint)


def _of_nodes(query: exp.Query) -> Iterator[tuple[int | None, Refusal]]:
    for node in query.walk():
        if (refusal := _refused(node)) is not None:
            line = next((part.meta["line"] for part in node.walk() if "line" in part.meta), None)
            yield line, refusal


def _refused(node: exp.Expr) -> Refusal | None:  # noqa: C901, PLR0911, PLR0912 - one for each form
    match node:
        case exp.Between() if node.args.get("symmetric") is not None:
            word = "SYMMETRIC" if node.args["symmetric"] else "ASYMMETRIC"
            low, high = (_text(node.args[name]) for name in ("low", "high"))
            bounds = f"{low} AND {high}"
            if node.args["symmetric"]:
                bounds = f"least({low}, {high}) AND greatest({low}, {high})"
            return f"Spark has no BETWEEN {word}", f"write {_text(node.this)} BETWEEN {bounds}"
        case exp.Distinct() if node.args.get("on") is not None:
            return (
                "Spark has no DISTINCT ON",
                _FIRST_ROWS,
            )
        case exp.Fetch() if (options := node.args.get("limit_options")) and options.args.get(
            "with_ties"
        ):
            return (
                "Spark has no FETCH FIRST … WITH TIES",
                _WITH_TIES,
            )
        case exp.Fetch():
            return "Spark has no FETCH FIRST", f"write LIMIT {_text(node.args.get('count'))}"
        case exp.CTE() if node.args.get("materialized") is not None:
            return "Spark has no AS MATERIALIZED", "leave the word out: WITH name AS (SELECT …)"
        case exp.Array() if node.args.get("value_constructor") is False:
            listed = ", ".join(map(_text, node.expressions))
            return "Spark has no ARRAY[…]", f"write array({listed})"
        case exp.Slice():
            return "Spark has no slices of a list", "take its elements one by one, with get(l, 0)"
        case exp.Parameter() | exp.Placeholder():
            return (
                f"{_text(node)} stands where a value should",
                "write the value, or :name of a value under [parameters] of changelog.toml",
            )
        case exp.Dot() if isinstance(node.this, exp.Literal) and node.this.is_string:
            names = ".".join(part.name for part in (node.this, node.expression))
            return f"text in double quotes is no name in Spark: {_text(node)}", f"write {names}"
        case exp.Literal() if not node.is_string:
            return _number(node.name)
        case exp.Table() if (
            node.name.upper() == "ONLY" and node.alias and not node.this.args.get("quoted")
        ):
            return "Spark has no FROM ONLY", f"write FROM {node.alias}: it has its own rows alone"
        case exp.Count() if isinstance(node.this, exp.Column) and node.this.is_star:
            return f"Spark does not count {_text(node.this)}", "write count(*)"
        case exp.Greatest() | exp.Least() if not node.expressions:
            return f"{_text(node)} is of one value", f"write {_text(node.this)}"
        case exp.Interval() if len(spans := _spans(node)) > 1:
            return (
                f"Spark has no interval of months and days in one: {_text(node)}",
                "write " + " + ".join(f"interval '{span}'" for span in spans) + ", one after one",
            )
        case exp.Window():
            return _window(node)
        case exp.WindowSpec():
            return _frame(node)
        case exp.Binary():
            return _bound(node)
        case _:
            return None


def _spans(node: exp.Interval) -> list[str]:
    """Return the parts of an interval of months, and of an interval of days, that a text has."""
    text = node.this.name if isinstance(node.this, exp.Literal) else ""
    parts = re.findall(r"[+-]?[\d.]+\s*[a-zA-Z]+", text)
    months = [part for part in parts if re.search("year|mon|decade|centur|millen", part.lower())]
    days = [part for part in parts if part not in months]
    return [" ".join(some) for some in (months, days) if some]


def _bound(node: exp.Binary) -> Refusal | None:
    """Refuse operators side by side that are bound differently by the engines and PostgreSQL."""
    for side in (node.left, node.right):
        bits = isinstance(node, _BITS) and isinstance(side, _BITS) and type(side) is not type(node)
        joined = isinstance(node, exp.DPipe) and side is node.right and isinstance(side, _SUMS[:2])
        inverted = isinstance(node, _SUMS) and isinstance(side, exp.BitwiseNot)
        if bits or joined or inverted:
            why = f"{_text(node)}: Spark and PostgreSQL do not compute its parts in one order"
            return why, _PARENTHESES
        if isinstance(node, _COMPARING) and isinstance(side, exp.Any | exp.All):
            return _quantified(node, side)
        if isinstance(node, _COMPARING) and isinstance(side, _COMPARED):
            return f"{_text(node)}: the result of a comparison is compared", _PARENTHESES
    return None


def _quantified(node: exp.Binary, side: exp.Any | exp.All) -> Refusal:
    word = "ANY" if isinstance(side, exp.Any) else "ALL"
    listed = side.this.unnest()
    hint = "compare it with the least or greatest value of a subquery: (SELECT max(x) FROM …)"
    if isinstance(node, exp.EQ) and word == "ANY":
        hint = f"write {_text(node.left)} IN (…)"
    elif isinstance(node, exp.NEQ) and word == "ALL":
        hint = f"write {_text(node.left)} NOT IN (…)"
    of = "a subquery" if isinstance(listed, exp.Query) else "a list"
    return f"Spark compares with no {word} of {of}: {_text(node)}", hint


def _number(text: str) -> Refusal | None:
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and float(text) in {float("inf"), float("-inf")}:
        return f"{text} is beyond a double", "write a number below 1.8e308"
    if not exponent and sum(map(str.isdigit, mantissa)) > _MOST_DIGITS:
        return (
            f"{text} has more than {_MOST_DIGITS} digits, which no decimal of Spark has",
            "write fewer digits, or the number with an exponent, such as 1.5e40: a double",
        )
    return None


# Windows


def _window(node: exp.Window) -> Refusal | None:
    of = node.this
    while isinstance(of, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        of = of.this
    if isinstance(of, exp.AggFunc) and isinstance(of.this, exp.Distinct):
        return f"Spark has no DISTINCT over a window: {_text(of)} OVER", _SUBQUERY
    named = None if node.args.get("alias") is None else _named_window(node)
    if node.args.get("alias") is not None and any(
        node.args.get(part) for part in ("partition_by", "order", "spec")
    ):
        return f"Spark adds nothing to a named window: {_text(of)} OVER", "write all of it in OVER"
    if not isinstance(of, _RANKED + _BESIDE):
        return None
    whole = named or node
    if whole.args.get("order") is None:
        return (
            f"{_text(of)} is over a window without an order",
            "write OVER (ORDER BY …), by columns that determine the row, such as the primary key",
        )
    frame = whole.args.get("spec")
    if frame is not None and (isinstance(of, _BESIDE) or not _is_whole_to_here(frame)):
        return f"Spark has no frame for {_text(of)}", "leave out ROWS or RANGE: it changes nothing"
    return _constant_arguments(of)


def _named_window(node: exp.Window) -> exp.Expr | None:
    select = node.find_ancestor(exp.Select)
    windows = [] if select is None else select.args.get("windows") or []
    return next((w for w in windows if w.name.lower() == node.alias.lower()), None)


def _constant_arguments(of: exp.Expr) -> Refusal | None:
    number = of.this if isinstance(of, exp.Ntile) else of.args.get("offset")
    if number is None:
        return None
    if number.find(exp.Column) is not None:
        return f"{_text(of)}: {_text(number)} is no constant", "write a number, such as 1"
    if isinstance(of, exp.Ntile) and (isinstance(number, exp.Neg) or number.name == "0"):
        return f"{_text(of)} is of no groups", "write a number from 1, such as ntile(4)"
    return None


def _is_whole_to_here(frame: exp.Expr) -> bool:
    start, side, end = frame.args.get("start"), frame.args.get("start_side"), frame.args.get("end")
    is_rows = str(frame.args.get("kind")).upper() == "ROWS"
    return is_rows and (start, side) == _WHOLE_TO_HERE[:2] and end in {None, _WHOLE_TO_HERE[2]}


def _frame(node: exp.WindowSpec) -> Refusal | None:  # noqa: PLR0911 - one for each form
    kind, window = str(node.args.get("kind")).upper(), node.parent
    text = _text(node)
    if kind == "GROUPS":
        return f"Spark has no frame by GROUPS: {text}", "write ROWS or RANGE"
    if node.args.get("exclude") is not None:
        return f"Spark has no EXCLUDE in a frame: {text}", "leave out EXCLUDE"
    ends = (node.args.get("start"), node.args.get("end"))
    bounds = [bound for bound in ends if isinstance(bound, exp.Expr)]
    for bound in bounds:
        is_whole = kind == "RANGE" or not isinstance(bound, exp.Literal) or bound.name.isdigit()
        if isinstance(bound, exp.Neg) or bound.find(exp.Column) is not None or not is_whole:
            return (
                f"{text}: {_text(bound)} is no constant from 0",
                "write a number, such as 1 PRECEDING or 1 FOLLOWING",
            )
    start = _place(node, "start")
    end = _place(node, "end") if node.args.get("end") is not None else 0.0
    if start is not None and end is not None and (start > end or start == _LAST or end == -_LAST):
        return f"{text} ends before it begins", "write the earlier end first"
    order = None if window is None else window.args.get("order")
    keys = [] if order is None else order.expressions
    if kind == "RANGE" and (start, end) != (-_LAST, _LAST):
        if not keys:
            return f"{text} is over a window without an order", "write ORDER BY before RANGE"
        if bounds and len(keys) > 1:
            return f"{text} counts from one value, and there are {len(keys)}", "write ROWS"
    return None


_LAST = float("inf")


def _place(node: exp.WindowSpec, name: str) -> float | None:
    """Return the rows from the current one to an end of a frame, or None if not known."""
    bound, side = node.args.get(name), str(node.args.get(f"{name}_side") or "").upper()
    sign = -1.0 if side == "PRECEDING" else 1.0
    if isinstance(bound, exp.Expr):
        is_number = isinstance(bound, exp.Literal) and not bound.is_string
        return sign * float(bound.name) if is_number else None
    return sign * _LAST if str(bound).upper() == "UNBOUNDED" else 0.0


# What the parser does not keep


def _of_tokens(text: str) -> Iterator[tuple[int, Refusal]]:
    tokens = sqlglot.tokenize(text, read=SparkSql)
    casts: list[int] = []
    depth = 0
    for place, token in enumerate(tokens):
        after = tokens[place + 1] if place + 1 < len(tokens) else None
        refusal = None
        match token.token_type:
            case TokenType.L_PAREN:
                depth += 1
                if place and tokens[place - 1].text.lower() in {"cast", "try_cast"}:
                    casts.append(depth)
            case TokenType.R_PAREN:
                if casts and casts[-1] == depth:
                    casts.pop()
                depth -= 1
            case TokenType.ALIAS if casts and casts[-1] == depth:
                refusal = refused_type(tokens[place + 1 :])
            case TokenType.DCOLON if text[token.start : token.end + 1] == "::":  # none is in 1.0D
                refusal = refused_type(tokens[place + 1 :])
            case _ if after is not None:
                refusal = _of_two(text, tokens[max(place - 2, 0) : place], token, after)
            case _:
                pass
        if refusal is not None:
            yield token.line, refusal


def _of_two(  # noqa: PLR0911 - one for each form
    text: str, before: Sequence[Token], token: Token, after: Token
) -> Refusal | None:
    """Return the refusal of two tokens that follow each other, or None."""
    match token.token_type:
        case TokenType.ISNULL | TokenType.NOTNULL if after.token_type != TokenType.L_PAREN:
            return (
                f"Spark has no {token.text.upper()} behind a value",
                "write IS " + ("NOT NULL" if token.token_type == TokenType.NOTNULL else "NULL"),
            )
        case TokenType.HEX_STRING if text[token.start : token.start + 2].lower() == "0x":
            return f"Spark has no numbers such as 0x{token.text}", f"write {int(token.text, 16)}"
        case TokenType.NUMBER if after.token_type in {TokenType.ROW, TokenType.ROWS} and (
            before and before[-1].token_type == TokenType.OFFSET
        ):
            return "Spark has no OFFSET … ROWS", f"write OFFSET {token.text}"
        case TokenType.NUMBER if before and (
            (before[-1].token_type, after.token_type) == (TokenType.LIMIT, TokenType.COMMA)
        ):
            return "Spark has no LIMIT with two numbers", f"write LIMIT … OFFSET {token.text}"
        case TokenType.NUMBER if before and (
            (before[-1].token_type, after.token_type) == (TokenType.OFFSET, TokenType.LIMIT)
        ):
            return "Spark has OFFSET behind LIMIT alone", f"write LIMIT … OFFSET {token.text}"
        case _ if after.token_type in _COMPARISON_SIGNS and _is_after_is(before, token):
            return "the result of IS is compared", _PARENTHESES
        case _ if after.token_type == TokenType.STRING and (refusal := refused_type([token], "")):
            return refusal
        case _:
            return None


def _is_after_is(before: Sequence[Token], token: Token) -> bool:
    """Tell whether a token ends `x IS NULL` or the like."""
    if token.token_type not in {TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.UNKNOWN}:
        return False
    kinds = [earlier.token_type for earlier in before[-2:]]
    return kinds[-1:] == [TokenType.IS] or kinds == [TokenType.IS, TokenType.NOT]


def _text(node: exp.Expr | None) -> str:
    """Return the text of an expression for people; what Spark lacks is written all the same."""
    if node is None:
        return ""
    text = node.sql("spark", normalize_functions="lower", unsupported_level=ErrorLevel.IGNORE)
    return re.sub(r"\s+", " ", text)


_KNOWN = {
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "string"),
    *("binary", "void", "variant", "array", "struct", "map", "varchar", "char", "character"),
    *("decimal", "dec", "numeric"),
}
_DECIMALS = {"decimal", "dec", "numeric"}
_SIZED = {*_DECIMALS, "varchar", "char", "character", "nchar", "nvarchar", "bpchar"}
_OF_SPARK = {
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "real",
    "float8": "double",
    "double precision": "double",
    "bool": "boolean",
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "datetime": "timestamp_ntz",
    "number": "decimal(18, 2), with the digits that its values need",
    "signed": "bigint",
}
_TEXTS = {
    *("text", "varchar", "character varying", "bpchar", "nvarchar", "uuid", "json", "jsonb"),
    *("xml", "citext"),
}
_TYPED = {*_KNOWN, *_OF_SPARK, *_TEXTS, "char"} - {
    *("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "array", "struct", "map"),
    *("long", "short", "number"),
}
"""Types before a constant in quotes that Spark has no such constants of."""


def refused_type(  # noqa: PLR0911 - one for each type
    tokens: Sequence[Token], cast: str = "cast"
) -> tuple[str, str] | None:
    """Return the refusal of the type that a text begins with, and what to write, or None.

    `tokens`: the text from its first word on. `cast`: empty where it stands before a constant in
    quotes, without a cast.
    """
    name = _name(tokens)
    if not cast:
        if name not in _TYPED:
            return None
        return f"Spark has no constants of type {name}", f"write cast('…' AS {_instead(name)})"
    rest = tokens[len(name.split()) if name != "double precision" else 1 :]
    opening = rest[0].token_type if rest else None
    if opening == TokenType.L_BRACKET or (opening == TokenType.L_PAREN and _is_list(rest)):
        return f"Spark has no type {name}[]", f"write array(…) of values cast to {_instead(name)}"
    if opening == TokenType.L_PAREN and name in _SIZED:
        return None  # of those that cut the text the comparison of columns speaks
    if name in _DECIMALS:
        why = f"a cast to {name} without its digits: Spark's has none after the point"
        hint = f"write {name}(18, 2) with the digits that its values need, 38 at most"
        return f"{why}, PostgreSQL's as many as the value", hint
    if name in {"char", "character", "nchar"}:
        return f"Spark has no type {name} without a length", "write left(cast(… AS string), 1)"
    if name == "interval":
        return (
            "Spark casts no text to an interval",
            "write it as a constant where it is added, such as dt + interval '1' day",
        )
    if name == "bytea":
        return "Spark has no type bytea", "write the column without a cast: a bytea is binary here"
    if name == "time":
        return "Spark has no type time", "write date_format(…, 'HH:mm:ss') of a moment"
    if name in _KNOWN - _TEXTS and opening == TokenType.L_PAREN:
        return f"Spark's type {name} has no size", f"write {name}"
    if name in _KNOWN - _TEXTS or name == "timestamp without time zone":
        return None
    return f"Spark has no type {name}", f"write {_instead(name)}"


def _instead(name: str) -> str:
    if name in _DECIMALS:
        return "decimal(18, 2)"
    if name in _KNOWN - _TEXTS - {"char", "character"}:
        return name
    return _OF_SPARK.get(name, "string")


def _name(tokens: Sequence[Token]) -> str:
    """Return the words of a type's name, in lower case."""
    words = [" ".join(tokens[0].text.lower().split())] if tokens else [""]
    following = [token.text.lower() for token in tokens[1:4]]
    if words[0] in {"timestamp", "time"} and following[:1] in (["with"], ["without"]):
        words += following
    elif words[0] in {"character", "char"} and following[:1] == ["varying"]:
        words += following[:1]
    return " ".join(words)


def _is_list(rest: Sequence[Token]) -> bool:
    """Tell whether `[` follows the sizes of a type."""
    closing = next((n for n, t in enumerate(rest) if t.token_type == TokenType.R_PAREN), None)
    return (
        closing is not None
        and closing + 1 < len(rest)
        and rest[closing + 1].token_type == TokenType.L_BRACKET
    )
