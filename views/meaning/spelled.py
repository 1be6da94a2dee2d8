"""Refuses SQL that Spark and PostgreSQL read differently: quotes, functions, rows, aliases. Pure.

Quotes and names of functions are checked in the tokens, because a parsed query no longer has them.
Each refusal says what to write for the same result in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from changelog.contract.base.errors import ViewError
from views.base.spark_sql import SparkSql, shown

_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
"""Functions whose second argument is removed from the first in PostgreSQL, and where."""
_PATTERNS = ("to_char", "to_varchar")
"""Functions with a pattern whose letters mean different things in the two."""


def check_spelled(text: str, columns: Collection[str]) -> None:
    """Refuse quotes and calls that the two languages read differently.

    `columns`: names of the columns of the tables that it reads.

    Raises ViewError: the query has one; the hint is what to write.
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
    """Refuse a text in double quotes that is a column's name: PostgreSQL reads it as the column.

    After AS it is a name in both.
    """
    is_text = token.token_type is TokenType.STRING and text[token.start] == '"'
    is_name = before is not None and before.token_type is TokenType.ALIAS
    if is_text and not is_name and token.text.lower() in names:
        raise ViewError(
            f'"{token.text}" in double quotes is a text in Spark, and a column in PostgreSQL',
            hint=f"write `{token.text}` for the column, or '{token.text}' for the text",
        )


def _check_call(name: Token, arguments: Sequence[str]) -> None:
    called = name.text.lower()
    shown = f"{called}({', '.join(arguments)})"
    if called in _TRIMS and len(arguments) == 2:  # noqa: PLR2004 - a text and its letters
        value, letters = arguments
        raise ViewError(
            f"{shown}: Spark removes the letters of the first argument, PostgreSQL those of "
            "the second",
            hint=f"write trim({_TRIMS[called]} {letters} FROM {value})",
        )
    if called == "log" and len(arguments) == 1:
        value = arguments[0]
        raise ViewError(
            f"{shown} is the natural logarithm in Spark, and the one to base 10 in PostgreSQL",
            hint=f"write ln({value}), or ln({value}) / ln(10)",
        )
    if called in _PATTERNS:
        value = arguments[0] if arguments else "…"
        raise ViewError(
            f"{shown}: the letters of its pattern mean one thing in Spark and another in "
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


# PostgreSQL compares rows field by field: with a null field the result is null, unless the other
# fields decide it (9.25.5, Row-wise Comparison). In Spark a row is one value, whose null fields are
# equal to each other and to nothing else. `IN (SELECT ...)` compares field by field in both.
_ORDERS = (exp.LT, exp.LTE, exp.GT, exp.GTE)


def check_rows(query: exp.Expr) -> None:
    """Refuse comparisons of rows.

    Raises ViewError: there is one; the hint has the comparison of the fields.
    """
    for node in query.walk():
        match node:
            case exp.EQ() | exp.NEQ() if _is_row(node.this) or _is_row(node.expression):
                raise _refusal(node, _by_field(node))
            case _ if isinstance(node, _ORDERS) and (
                _is_row(node.this) or _is_row(node.expression)
            ):
                raise _refusal(node, "compare the first fields, and the next where they are equal")
            case exp.Between() if _is_row(node.this):
                raise _refusal(node, "compare the first fields, and the next where they are equal")
            case exp.In() if _is_row(node.this) and node.args.get("query") is None:
                raise _refusal(node, _by_list(node))


def _is_row(value: exp.Expr | None) -> bool:
    value = value.unnest() if isinstance(value, exp.Paren) else value
    return isinstance(value, exp.Tuple) and len(value.expressions) > 1


def _by_field(node: exp.EQ | exp.NEQ) -> str:
    one, other = node.this.unnest(), node.expression.unnest()
    if not (_is_row(one) and _is_row(other) and len(one.expressions) == len(other.expressions)):
        return "compare their fields one by one"
    sign, word = ("=", " AND ") if isinstance(node, exp.EQ) else ("<>", " OR ")
    return f"write ({_fields(one, other, sign, word)})"


def _by_list(node: exp.In) -> str:
    row = node.this.unnest()
    rows = [item.unnest() for item in node.expressions]
    if not all(_is_row(other) and len(other.expressions) == len(row.expressions) for other in rows):
        return "compare their fields one by one"
    return "write " + " OR ".join(f"({_fields(row, other, '=', ' AND ')})" for other in rows)


def _fields(one: exp.Expr, other: exp.Expr, sign: str, word: str) -> str:
    pairs = zip(one.expressions, other.expressions, strict=True)
    return word.join(f"{shown(mine)} {sign} {shown(theirs)}" for mine, theirs in pairs)


def _refusal(node: exp.Expr, hint: str) -> ViewError:
    return ViewError(
        f"{shown(node)}: where a field is null, Spark has false or true where PostgreSQL has null",
        hint=hint,
    )


_CLAUSES = ("where", "from_", "joins")


def check_aliases(query: exp.Expr, tables: Mapping[str, Collection[str]]) -> None:
    """Refuse aliases that sqlglot resolves, and Spark's analyser does not.

    `query`: with qualified columns, and without its own aliases expanded. `tables`: the columns of
    each captured table.
    """
    for select in query.find_all(exp.Select):
        names = {item.alias.lower() for item in select.selects if isinstance(item, exp.Alias)}
        for clause in _CLAUSES:
            part = select.args.get(clause)
            for one in part if isinstance(part, list) else [part]:
                for column in one.find_all(exp.Column) if one is not None else ():
                    own = column.find_ancestor(exp.Select) is select
                    if own and not column.table and column.name.lower() in names:
                        word = "WHERE" if clause == "where" else "ON"
                        raise ViewError(
                            f'"{column.name}" in {word} is a name that SELECT gives, and is not '
                            "known there yet",
                            hint="write what it stands for, or put the query into a subquery",
                        )
    for table in query.find_all(exp.Table):
        named = table.args["alias"].columns if table.args.get("alias") else []
        listed = tables.get(table.name, ())
        if named and listed and len(named) != len(listed):
            raise ViewError(
                f"{table.alias} is given {len(named)} names of columns, and has {len(listed)}",
                hint="name the table alone, and its columns with AS in SELECT",
            )
