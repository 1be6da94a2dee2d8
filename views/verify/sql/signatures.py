"""Signatures of a query: each operation with the types of its arguments.

A signature is a line such as `equal(decimal, double)` or `cast(string) date`. A query is proved if
every signature of it is among those of the expressions that tests compare (`COMPARED`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from sqlglot import exp

from views.verify.sql.sqltypes import INTEGERS, Types
from views.verify.values.types import Type

_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_ORDER = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_BRANCHES = (exp.Coalesce, exp.If, exp.Case)
_BY_WIDTH = (exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Sum)
_PASSED = (
    *(exp.Paren, exp.Alias, exp.And, exp.Or, exp.Column, exp.Subquery, exp.Star, exp.Aliases),
    *(exp.PropertyEQ, exp.Distinct, exp.Dot, exp.TableAlias, exp.Identifier, exp.Exists),
)
_OF_ANY_NUMBER = (exp.Concat, exp.ConcatWs, exp.DPipe, exp.Struct, exp.Array, exp.Count)
UNKNOWN = "?"
COMPARED = frozenset(files(__package__).joinpath("compared.txt").read_text("utf-8").splitlines())
"""The signatures of the expressions that tests compare in Spark and DuckDB over hostile values.

`make pages` generates the file from `tests/fixtures/expressions.txt`.
"""


def class_of(kind: Type | None, *, by_width: bool = False) -> str:
    """Return the name of a type in signatures; integers of all widths share one."""
    if kind is None:
        return UNKNOWN
    return "integer" if kind.name in INTEGERS and not by_width else kind.name


def signatures(query: exp.Expr, types: Types) -> Iterator[tuple[exp.Expr, str]]:
    """Yield the operations in a query, each with its signature."""
    for node in query.walk():
        for signature in _signatures_of(node, types):
            yield node, signature


def _signatures_of(node: exp.Expr, types: Types) -> Iterator[str]:  # noqa: C901, PLR0912 - one for each
    match node:
        case exp.Literal():
            if isinstance(node.parent, exp.Interval):
                return
            kind = types.of(node)
            yield f"literal {'number' if kind is None else kind.name}"
        case exp.HexString() | exp.Boolean() | exp.Null():
            yield f"literal {type(node).__name__.lower()}"
        case exp.Group():
            for part in node.expressions:
                yield f"group({class_of(types.of(part))})"
        case exp.Select() if node.args.get("distinct") is not None:
            for part in node.selects:
                yield f"group({class_of(types.of(part))})"
        case exp.SetOperation():
            for one, two in zip(node.left.selects, node.right.selects, strict=False):
                if node.args.get("distinct"):
                    yield f"group({class_of(types.of(one))})"
                yield from _pairs("branches", [one, two], types)
        case exp.WindowSpec():
            yield f"frame {node.text('kind').lower()}"
        case exp.Ordered():
            yield f"sort({class_of(types.of(node.this))})"
        case exp.Cast():
            word = "try_cast" if isinstance(node, exp.TryCast) and node.args.get("safe") else "cast"
            inner = class_of(types.of(node.this))
            yield f"{word}({inner}) {class_of(types.of(node))}"
        case _ if isinstance(node, _PASSED):
            return
        case exp.Func() | exp.Binary() | exp.Unary() | exp.Predicate() | exp.Interval():
            yield from _of_operation(node, types)
        case _:
            return


def _of_operation(node: exp.Expr, types: Types) -> Iterator[str]:
    name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__
    if isinstance(node, (*_EQUAL, *_ORDER)):
        yield name
        word = "equal" if isinstance(node, _EQUAL) else "order"
        yield from _pairs(word, _sides(node), types)
    elif isinstance(node, exp.If) and isinstance(node.parent, exp.Case):
        return  # a WHEN: its CASE has the branches
    elif isinstance(node, _BRANCHES):
        yield name
        yield from _pairs("branches", _branches(node), types)
        if isinstance(node, exp.Case) and node.this is not None:
            yield from _pairs("equal", [node.this, *(b.this for b in node.args["ifs"])], types)
    elif isinstance(node, _OF_ANY_NUMBER):
        for part in _arguments(node):
            yield f"{name}({class_of(types.of(part))}, …)"
        if isinstance(node, exp.Array):
            yield from _pairs("branches", node.expressions, types)
    elif isinstance(node, exp.Greatest | exp.Least):
        yield from _pairs(name, _arguments(node), types)
    elif isinstance(node, exp.Interval):
        yield f"interval {node.text('unit').lower().rstrip('s')}".strip()
    else:
        by_width = isinstance(node, _BY_WIDTH)
        kinds = [class_of(types.of(part), by_width=by_width) for part in _arguments(node)]
        yield f"{name}({', '.join(kinds)})"


def _pairs(word: str, parts: list[exp.Expr], types: Types) -> Iterator[str]:
    if not parts:
        return
    first, *others = (class_of(types.of(part)) for part in parts)
    for other in others or [first]:
        yield f"{word}({', '.join(sorted((first, other)))})"


def _sides(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.In() if node.args.get("query") is not None:
            return [node.this, *node.args["query"].this.selects]
        case exp.In():
            return [node.this, *node.expressions]
        case _:
            return [node.this, node.expression]


def _branches(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.Case():
            default = node.args.get("default")
            ifs = [branch.args["true"] for branch in node.args["ifs"]]
            return [*ifs, *([default] if default else [])]
        case exp.If():
            return [part for word in ("true", "false") if (part := node.args.get(word))]
        case _:
            return [node.this, *node.expressions]


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of an operation, in their order."""
    arguments: list[exp.Expr] = []
    for value in node.args.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Order):  # within an aggregate
                part = part.this  # noqa: PLW2901 - the value in it
            if isinstance(part, exp.Distinct):
                arguments += part.expressions
            elif isinstance(part, exp.Condition | exp.Filter | exp.Subquery) and not isinstance(
                part, exp.Var
            ):
                arguments.append(part)
    return arguments


@cache
def is_compared(signature: str) -> bool:
    """Tell whether a test compares a signature; an unknown type matches any."""
    if UNKNOWN not in signature:
        return signature in COMPARED
    form = re.escape(signature).replace(re.escape(UNKNOWN), r"[a-z_]+")
    return any(re.fullmatch(form, compared) for compared in COMPARED)
