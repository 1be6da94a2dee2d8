"""Calls in a view's SQL that Spark does not have, as expressions of Spark's. Pure.

| call | value |
|---|---|
| `quotient(a, b, s, t, most)` | PostgreSQL's division of numerics (`views.project.quotients`) |
| `array_agg(x ORDER BY y)` | PostgreSQL's list in an order, with nulls; null of no rows |
| `has_all(l, m)` | PostgreSQL's `l @> m`: whether each element of m is one of l; no null is |
| `json_element(j, '$.a[0]')` | an element of a list in JSON as text; null of a null |
| `list_joined(l, m)` | the elements of both lists; of one alone where the other is null |
| `list_part(l, 2, 3)` | PostgreSQL's `l[2:3]` |
| `list_place(l, x)` | the place of the first element that is x, from 1; null is found, too |
| `list_without(l, x)` | the list without elements that are x, or null if it is |
| `label_place(m, array('sad', 'ok'))` | the number of a label of an enum, from 1 |
| `significant(d, 15, p, s)` | a float as PostgreSQL casts it to numeric(p, s): by so many digits |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from changelog.contract.base.errors import ViewError
from views.base.engine_error import raised
from views.base.spark_sql import SparkSql
from views.project import quotients

_PART_OF_ORDER = re.compile(
    r"(.*?)(?:\s+(DESC|ASC))?(?:\s+NULLS\s+(FIRST|LAST))?", re.IGNORECASE | re.DOTALL
)
_ELEMENT = "`element of this list`"
"""The name of an element in a lambda, which hides no column."""
_DISTINCT = re.compile(r"\s*DISTINCT\b", re.IGNORECASE)


def with_own_calls(text: str) -> str:
    """Return a query with each call that Spark does not have as an expression of Spark's.

    Raises:
        ViewError: a call has other arguments than it takes.
    """
    before = len(text)
    while (call := _last_call(text, before)) is not None:
        before = call[0].start
        text = _expanded(text, *call)
    return text


def _last_call(text: str, before: int) -> tuple[Token, list[Token]] | None:
    """Return the last call of ours that begins before a place, and the tokens after its name."""
    if not any(name in text.lower() for name in (*_EXPANDED, "array_agg")):
        return None
    tokens = sqlglot.tokenize(text, read=SparkSql)
    for place in range(len(tokens) - 2, -1, -1):
        name = tokens[place].text.lower()
        if tokens[place].start >= before or tokens[place + 1].token_type is not TokenType.L_PAREN:
            continue
        if name in _EXPANDED or name == "array_agg":
            return tokens[place], tokens[place + 1 :]
    return None


def _expanded(text: str, name: Token, tokens: Sequence[Token]) -> str:
    commas, orders, end = _marks(tokens)
    cuts = [tokens[0].end + 1, *(token.start for token in commas), tokens[end].start]
    parts = [text[first:last].lstrip(",").strip() for first, last in pairwise(cuts)]
    last = tokens[end].end + 1
    if name.text.lower() != "array_agg":
        return text[: name.start] + _EXPANDED[name.text.lower()](parts) + text[last:]
    if not orders:  # Spark's own
        return text
    value = text[cuts[0] : orders[0].start].strip()
    keys = [text[orders[0].end + 1 : cuts[1]].strip(), *parts[1:]]
    where = ""
    if len(tokens) > end + 1 and tokens[end + 1].token_type is TokenType.FILTER:
        _, _, behind = _marks(tokens[end + 2 :])
        where = text[last : tokens[end + 2 + behind].end + 1]
        last += len(where)
    return text[: name.start] + _ordered_list(value, keys, where) + text[last:]


def _marks(tokens: Sequence[Token]) -> tuple[list[Token], list[Token], int]:
    """Return the commas and ORDER BY of a call, and the place of its last parenthesis.

    `tokens`: from its first parenthesis on.
    """
    depth = 0
    commas: list[Token] = []
    orders: list[Token] = []
    for place, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return commas, orders, place
        if depth == 1 and token.token_type is TokenType.COMMA:
            commas.append(token)
        if depth == 1 and token.token_type is TokenType.ORDER_BY:
            orders.append(token)
    raise ViewError(f"{tokens[0].line}:{tokens[0].col}: a parenthesis is not closed")


def _ordered_list(value: str, keys: Sequence[str], where: str) -> str:
    """Return a list of values in an order: Spark's own has no order, and leaves out nulls."""
    distinct = _DISTINCT.match(value)
    value = value[distinct.end() :].strip() if distinct else value
    fields, compared = [f"'v', {value}"], "0"
    for number, key in reversed([*enumerate(keys)]):
        match = _PART_OF_ORDER.fullmatch(key)
        assert match is not None  # noqa: S101 - it matches any text
        fields.insert(1, f"'k{number}', {match[1]}")
        is_down = (match[2] or "").upper() == "DESC"
        nulls_last = (match[3] or ("LAST" if is_down else "FIRST")).upper() == "LAST"
        one, two = f"p.k{number}", f"q.k{number}"
        less, null = (1, -1) if is_down else (-1, 1), (1, -1) if nulls_last else (-1, 1)
        compared = (
            f"CASE WHEN {one} IS NULL AND {two} IS NOT NULL THEN {null[0]} "
            f"WHEN {one} IS NOT NULL AND {two} IS NULL THEN {null[1]} "
            f"WHEN {one} < {two} THEN {less[0]} WHEN {one} > {two} THEN {less[1]} "
            f"ELSE {compared} END"
        )
    word = "DISTINCT " if distinct else ""
    rows = f"collect_list({word}named_struct({', '.join(fields)})){where}"
    values = f"transform(array_sort({rows}, (p, q) -> {compared}), e -> e.v)"
    return f"get(filter(array({values}), e -> size(e) > 0), 0)"


def _has_all(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "has_all(l, array(1, 2))")
    one, other = parts
    return f"(array_size(array_except({other}, array_compact({one}))) = 0)"


def _json_element(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "json_element(j, '$[0]')")
    document, path = parts
    return f"try_variant_get(parse_json({document}), {path}, 'string')"


def _list_joined(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "list_joined(l, array(1, 2))")
    return f"coalesce(concat({', '.join(parts)}), {', '.join(parts)})"


def _list_part(parts: Sequence[str]) -> str:
    _check_number(parts, 3, "list_part(l, 2, 3)")
    values, first, last = parts
    start = f"greatest({first}, 1)"
    end = f"greatest(least({last}, array_size({values})), {start} - 1)"
    return (
        f"(CASE WHEN {first} IS NOT NULL AND {last} IS NOT NULL "
        f"THEN slice({values}, {start}, {end} - {start} + 1) END)"
    )


def _list_place(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "list_place(l, 1)")
    values, value = parts
    nulls = f"transform({values}, {_ELEMENT} -> {_ELEMENT} IS NULL)"
    place = f"CASE WHEN {value} IS NULL THEN array_position({nulls}, true) "
    return f"cast(nullif({place}ELSE array_position({values}, {value}) END, 0) AS int)"


def _list_without(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "list_without(l, 1)")
    values, value = parts
    return f"filter({values}, {_ELEMENT} -> NOT ({_ELEMENT} <=> {value}))"


def _check_number(parts: Sequence[str], number: int, example: str) -> None:
    if len(parts) != number:
        name = example.partition("(")[0]
        raise ViewError(f"{name} takes {number} arguments", hint=f"write {example}")


def _label_place(parts: Sequence[str]) -> str:
    _check_number(parts, 2, "label_place(m, array('sad', 'ok'))")
    label, labels = parts
    place = f"cast(nullif(array_position({labels}, {label}), 0) AS int)"
    unknown = raised(
        f"label_place({', '.join(parts)})",
        "its value is no label of the type, as the schema on the log has it",
        "start capture anew, which writes a schema with the labels that were added since",
    )
    return f"(CASE WHEN {label} IS NULL OR {place} IS NOT NULL THEN {place} ELSE {unknown} END)"


def _significant(parts: Sequence[str]) -> str:
    value, *sizes = parts
    if len(sizes) != 3 or not all(size.isdigit() for size in sizes):  # noqa: PLR2004 - see above
        raise ViewError(
            "significant takes a float, its digits, and the size of a decimal",
            hint="write significant(d, 15, 12, 2)",
        )
    digits, precision, scale = sizes
    written = f"format_number(v, '0.{'0' * (int(digits) - 1)}E0')"
    not_finite = raised(
        f"significant({', '.join(parts)})",
        "it is NaN or infinite, which no decimal is",
        "leave these rows out, or write CASE WHEN abs(x) < 1e18 THEN … END, which is null of them",
    )
    return (
        f"transform(array(cast({value} AS double)), v -> CASE WHEN v IS NULL "
        f"OR abs(v) < cast('Infinity' AS double) THEN "
        f"cast({written} AS decimal({precision}, {scale})) ELSE {not_finite} END)[0]"
    )


_EXPANDED: dict[str, Callable[[Sequence[str]], str]] = {
    quotients.NAME: quotients.in_spark,
    "has_all": _has_all,
    "json_element": _json_element,
    "label_place": _label_place,
    "list_joined": _list_joined,
    "list_part": _list_part,
    "list_place": _list_place,
    "list_without": _list_without,
    "significant": _significant,
}
"""By the name of a call, its expression in Spark's SQL."""
