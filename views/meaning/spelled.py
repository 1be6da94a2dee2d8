"""Texts of a query that Spark reads otherwise than PostgreSQL: quotes and names of functions. Pure.

Their meaning is decided by how they are written, which a parsed query has no trace of: so the
tokens are looked at. Each is refused with what says the same to both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import SparkSql

_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_PATTERNS = ("to_char", "to_varchar")


def check_spelled(text: str, columns: Collection[str]) -> None:
    """Check that a query has nothing that the two languages read as two things.

    Args:
        text: the query.
        columns: names of the columns of the tables that it reads.

    Raises:
        ViewError: it has; the hint is what to write.
    """
    tokens = sqlglot.tokenize(text, read=SparkSql)
    names = {name.lower() for name in columns} | {
        token.text.lower()
        for token in tokens
        if token.token_type in {TokenType.VAR, TokenType.IDENTIFIER}
    }
    for place, token in enumerate(tokens):
        _check_quotes(text, token, tokens[place - 1] if place else None, names)
        if place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN:
            _check_call(token, list(_arguments(text, tokens[place + 1 :])))


def _check_quotes(text: str, token: Token, before: Token | None, names: Collection[str]) -> None:
    """Refuse a text in double quotes that bears the name of a column: PostgreSQL takes it for one.

    Behind AS it is a name in both.
    """
    is_text = token.token_type is TokenType.STRING and text[token.start] == '"'
    is_name = before is not None and before.token_type is TokenType.ALIAS
    if is_text and not is_name and token.text.lower() in names:
        raise ViewError(
            f'"{token.text}" in double quotes is a text to Spark, and a column to PostgreSQL',
            hint=f"write `{token.text}` for the column, or '{token.text}' for the text",
        )


def _check_call(name: Token, arguments: Sequence[str]) -> None:
    called = name.text.lower()
    shown = f"{called}({', '.join(arguments)})"
    if called in _TRIMS and len(arguments) == 2:  # noqa: PLR2004 - a text and its letters
        value, letters = arguments
        raise ViewError(
            f"{shown}: Spark takes the letters off that come first, PostgreSQL those that come "
            "second",
            hint=f"write trim({_TRIMS[called]} {letters} FROM {value})",
        )
    if called == "log" and len(arguments) == 1:
        value = arguments[0]
        raise ViewError(
            f"{shown} is the natural logarithm to Spark, and that to base 10 to PostgreSQL",
            hint=f"write ln({value}), or ln({value}) / ln(10)",
        )
    if called in _PATTERNS:
        value = arguments[0] if arguments else "…"
        raise ViewError(
            f"{shown}: the letters of its pattern mean one thing to Spark and another to "
            "PostgreSQL",
            hint=f"write date_format({value}, 'yyyy-MM-dd HH:mm:ss') for a date or time (MM is the "
            f"month, mm the minute), or cast({value} AS string) for a number",
        )


def _arguments(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the text of each argument of a call, whose first token opens its parenthesis."""
    depth, start = 0, tokens[0].end + 1
    for token in tokens:
        match token.token_type:
            case TokenType.L_PAREN:
                depth += 1
            case TokenType.R_PAREN:
                depth -= 1
            case _:
                pass
        if not depth or (depth == 1 and token.token_type is TokenType.COMMA):
            if argument := " ".join(text[start : token.start].split()):
                yield argument
            start = token.end + 1
        if not depth:
            return
