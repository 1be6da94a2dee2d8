"""Lists the parts of a parsed query that are translated, and refuses all others."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from changelog.contract.base.errors import ViewError
from views.base.postgres_sql import PostgresSql
from views.postgres.functions import INSTEAD
from views.postgres.values import refusal

_PLAIN = {"this", "expression", "expressions"}
_TAIL = {"with_", "order", "limit", "offset"}
_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Select: {
        *("expressions", "from_", "joins", "where", "group", "having", "distinct", "windows"),
        *_TAIL,
    },
    **{kind: {*_PLAIN, "distinct", *_TAIL} for kind in (exp.Union, exp.Intersect, exp.Except)},
    exp.Subquery: {"this", "alias"},
    exp.Table: {"this", "db", "alias", "only"},
    exp.TableAlias: {"this", "columns"},
    exp.Values: {"expressions", "alias"},
    exp.Alias: {"this", "alias"},
    exp.With: {"expressions", "recursive"},
    exp.CTE: {"this", "alias", "materialized"},
    exp.Join: {"this", "side", "kind", "on", "using", "method"},
    exp.Lateral: {"this", "alias"},
    exp.Group: {"expressions"},
    exp.Distinct: {"expressions", "on"},
    exp.Fetch: {"direction", "count", "limit_options"},
    exp.LimitOptions: {"rows", "with_ties"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Window: {"this", "partition_by", "order", "spec", "alias", "over"},
    exp.WindowSpec: {"kind", "start", "start_side", "end", "end_side"},
    exp.Identifier: {"this", "quoted"},
    exp.Column: {"this", "table"},
    exp.Literal: {"this", "is_string"},
    exp.Between: {"this", "low", "high", "symmetric"},
    exp.In: {"this", "expressions", "query"},
    **{kind: {*_PLAIN, "negate"} for kind in (exp.Is, exp.Like, exp.ILike)},
    exp.Case: {"this", "ifs", "default"},
    exp.If: {"this", "true", "false"},
    exp.Cast: {"this", "to"},
    exp.DataType: {"this", "expressions", "kind", "nested"},
    exp.Substring: {"this", "start", "length"},
    exp.Trim: {"this", "expression", "position"},
    exp.StrPosition: {"this", "substr"},
    exp.AtTimeZone: {"this", "zone"},
    exp.Interval: {"this", "unit"},
    exp.Array: {"expressions"},
    **{kind: {*_PLAIN, "only_json_types"} for kind in (exp.JSONExtract, exp.JSONExtractScalar)},
    **{kind: {*_PLAIN, "typed", "safe"} for kind in (exp.Div, exp.DPipe)},
}
"""By class of sqlglot, the arguments that are translated; other classes have `_PLAIN`."""
_WORDS = {
    "db": "a schema before a column",
    "ordinality": "WITH ORDINALITY",
    "sample": "TABLESAMPLE",
    "locks": "FOR UPDATE",
    "exclude": "EXCLUDE",
}
"""Names of sqlglot's arguments in messages, if they are no words of SQL themselves."""
_TYPES = {"date", "timestamp", "timestamptz", "interval", "zone", "precision", "time", "timetz"}


def check_constants(text: str) -> None:
    """Refuse a constant that has its type before it and is cast by `::`.

    The parser reads `date '2024-01-01'::timestamp` as a cast of a timestamp to date; PostgreSQL
    casts the date.

    Raises:
        ViewError: there is one.
    """
    tokens = sqlglot.tokenize(text, read=PostgresSql)
    for before, constant, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        typed = before.text.lower() in _TYPES or before.token_type in PostgresSql.Parser.TYPE_TOKENS
        if (
            typed
            and constant.token_type is TokenType.STRING
            and (after.token_type is TokenType.DCOLON)
        ):
            raise ViewError(
                f"{before.line}:{before.col}: {before.text} '{constant.text}'::…: it is not "
                "clear what is cast",
                hint=f"write ({before.text} '{constant.text}')::…",
            )


def check_parts(query: exp.Expr) -> None:
    """Refuse a query with a part that is not translated.

    Raises:
        ViewError: it has one, which is named.
    """
    for node in query.walk():
        if isinstance(node, exp.Unnest):
            raise refusal(node, "unnest is not known here", INSTEAD["unnest"])
        parts = _PARTS.get(type(node), _PLAIN)
        for name, value in node.args.items():
            if value and name not in parts:
                word = _WORDS.get(name, name.rstrip("_").upper())
                raise refusal(node, f"{word} is not known here")
