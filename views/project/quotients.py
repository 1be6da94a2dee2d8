"""`quotient` in a view's SQL: PostgreSQL's division of numerics, as an expression of Spark's. Pure.

PostgreSQL gives a quotient the decimal places that make 16 significant digits or more, counted in
groups of four digits of both values (`select_div_scale` of its `numeric.c`), and rounds it there,
halves away from zero. Spark's types have one number of places for all rows, and its `/` rounds
once, at the places of its type. So there is a `/` for each number of places, with types that make
it round there, and a CASE that picks one by the values. Nothing is rounded twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from changelog.contract.base.errors import ViewError
from views.base.engine_error import raised

NAME = "quotient"
DIGITS, ROUNDED_DIGITS = 37, 38
"""Digits of the result, by itself and rounded to some places."""
_MOST = 38
_GROUP = 4
_SIGNIFICANT = 16
_LEAST = 6
"""Places that Spark's `/` has at least."""
_ARGUMENTS = (5, 6)


def in_spark(parts: Sequence[str]) -> str:
    """Return `quotient(a, b, s, t, most)` as an expression of Spark's.

    `a` is divided by `b`; they have `s` and `t` decimal places, the result has `most`: a value of
    more is an error. With a sixth argument the result is rounded to so many places.

    Raises:
        ViewError: it has other arguments.
    """
    if len(parts) not in _ARGUMENTS or not all(part.isdigit() for part in parts[2:]):
        raise ViewError(
            f"{NAME} takes two numbers, their decimal places, those of the result at most and, "
            "where it is rounded, to how many",
            hint=f"write {NAME}(a, b, 2, 0, 24)",
        )
    one, other, *sizes = parts
    return _in_spark(one, other, *map(int, sizes))


def _in_spark(  # noqa: PLR0917 - as they stand in a call
    one: str, other: str, scale: int, below: int, most: int, places: int | None = None
) -> str:
    size = f"{DIGITS}, {most}" if places is None else f"{ROUNDED_DIGITS}, {places}"

    call = f"{NAME}({', '.join(map(str, (one, other, scale, below, most)))})"

    def sized(value: str, weight_of: int) -> str:
        whole = value if places is None else f"round({value}, {places})"
        if places is not None or _GROUP * (weight_of + 1) <= DIGITS - most < weight_of:
            return f"cast({whole} AS decimal({size}))"
        many = raised(
            call,
            f"it has more digits before the point than the {DIGITS - most} that a quotient has",
            "round it, as in round(…, 4), or cast it to double precision",
        )
        return f"coalesce(try_cast({whole} AS decimal({size})), {many})"

    def digits(name: str, behind: int) -> str:
        zeros = "0" * (-behind % _GROUP)
        written = f"concat(replace(cast(abs(q.{name}) AS string), '.', ''), '{zeros}')"
        return f"trim(LEADING '0' FROM {written})"

    def group(name: str) -> str:
        return f"cast(left(q.{name}, (length(q.{name}) - 1) % {_GROUP} + 1) AS int)"

    values = (
        f"named_struct('a', cast({one} AS decimal({_MOST}, {scale})), "
        f"'b', cast({other} AS decimal({_MOST}, {below})))"
    )
    written = (
        f"named_struct('a', q.a, 'b', q.b, 'm', {digits('a', scale)}, 'n', {digits('b', below)})"
    )
    shift = -(-scale // _GROUP) - -(-below // _GROUP)
    weight = (
        f"(length(q.m) + 3) div {_GROUP} - (length(q.n) + 3) div {_GROUP} - ({shift}) - "
        f"CASE WHEN {group('m')} <= {group('n')} THEN 1 ELSE 0 END"
    )
    weighed = (
        f"named_struct('a', q.a, 'b', q.b, 'w', CASE WHEN q.a <> 0 AND q.b <> 0 THEN {weight} END)"
    )
    whens = [
        "WHEN q.a IS NULL OR q.b IS NULL THEN NULL",
        f"WHEN q.w IS NULL THEN cast(q.a / q.b AS decimal({size}))",
    ]
    least = max(scale, below)
    for weight_of in range(_SIGNIFICANT // _GROUP, (_SIGNIFICANT - most) // _GROUP - 1, -1):
        rounded_at = max(_SIGNIFICANT - _GROUP * weight_of, least)
        divided = _divided(scale, below, rounded_at)
        whens.append(f"WHEN q.w >= {weight_of} THEN {sized(divided, weight_of)}")
    few = raised(
        call,
        f"it has more than {most} decimal places in PostgreSQL",
        "round it, as in round(…, 7), or cast what is divided to more decimal places",
    )
    last = few if places is None else f"cast(0 AS decimal({size}))"
    case = f"CASE {' '.join(whens)} ELSE {last} END"
    return (
        f"transform(transform(transform(array({values}), q -> {written}), q -> {weighed}), "
        f"q -> {case})[0]"
    )


def _divided(scale: int, below: int, rounded_at: int) -> str:
    """Return a division whose type makes Spark round it at some decimal places."""
    more = max(_LEAST - rounded_at, 0)
    whole = _MOST - rounded_at - more - below
    one = f"cast(q.a AS decimal({min(whole + scale, _MOST)}, {scale}))"
    if not more:
        return f"{one} / q.b"
    up = 10**more
    wide = f"cast(q.b AS decimal({_MOST - more - 2}, {below}))"
    return f"({one} / ({wide} * {up})) * {up}"
