"""The SQL of views, as sqlglot parses it: Spark 4's.

sqlglot's own dialect `spark` is that of earlier versions, in which `'O''Brien'` is two texts put
together. Since Spark 4.1 a doubled quote stands for one (its migration guide, under
`spark.sql.legacy.consecutiveStringLiterals.enabled`), and a view means that on Spark 4.0 too. Each
literal has one parsed value, and is written to each engine by the rules of that engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

_AT_MOST = 80
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class SparkSql(Spark):
    """Spark 4's SQL."""

    class Tokenizer(Spark.Tokenizer):
        """Takes texts of one kind of quotes that touch each other for one text."""

        def tokenize(self, sql: str) -> list[Token]:
            """Split a text into tokens; `''` inside of a text is an apostrophe."""
            tokens: list[Token] = []
            for token in super().tokenize(sql):
                last = tokens[-1] if tokens else None
                if last is not None and _touch(sql, last, token):
                    last.text = f"{last.text}{sql[token.start]}{token.text}"
                    last.end = token.end
                    last.comments.extend(token.comments)
                else:
                    tokens.append(token)
            return tokens

    class Parser(SparkParser):
        """Passes over hints: they change no row, and the names in them are no tables."""

        def _parse_hint(self) -> exp.Hint | None:
            super()._parse_hint()
            return None


def sources_of(query: exp.Expr) -> dict[int, exp.Table | Scope]:
    """Return the table or query that each qualified column of a query is of, by the node's id."""
    sources: dict[int, exp.Table | Scope] = {}
    for scope in traverse_scope(query):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table | Scope):
                sources.setdefault(id(column), source)
    return sources


def _touch(sql: str, one: Token, two: Token) -> bool:
    both_texts = one.token_type == two.token_type == TokenType.STRING
    return both_texts and one.end + 1 == two.start and sql[one.end] == sql[two.start]


def doubled_quotes(sql: str) -> Iterator[int]:
    """Yield the place of each doubled quote inside of a text."""
    for one, two in pairwise(Spark().tokenize(sql)):
        if _touch(sql, one, two):
            yield one.end


def leaves(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the queries under UNION, INTERSECT and EXCEPT; a plain query yields itself."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        yield from leaves(query.left)
        yield from leaves(query.right)
    else:
        yield query


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the parts of a condition that all have to hold; none where there is no condition."""
    if condition is None:
        return
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.left)
        yield from conjuncts(inner.right)
    else:
        yield inner


def shown(node: exp.Expr) -> str:
    """Return an expression as its author may have written it.

    The names that a reading gives to tables and columns are taken off: a table is shown by its
    alias, a column without its table, a plain name without quotes.
    """
    plain = node.unalias().copy()
    for part in list(plain.walk()):
        match part:
            case exp.Column():
                part.set("table", None)
                part.set("db", None)
            case exp.Table() if part.alias:
                part.set("this", exp.to_identifier(part.alias))
                part.set("alias", None)
            case exp.Identifier() if _PLAIN.fullmatch(part.name):
                part.set("quoted", False)
            case _:
                pass
    return " ".join(plain.sql("spark", comments=False, normalize_functions="lower").split())


def briefly(node: exp.Expr) -> str:
    """Return an expression as text, cut to the length of a message."""
    text = shown(node)
    return text if len(text) <= _AT_MOST else text[: _AT_MOST - 3] + "..."
