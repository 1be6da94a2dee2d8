"""The plan of a comparison: paired columns, the key, buckets, and what is left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from changelog.compare.forms import Form, Kind, Native, have_one_text, pair
from changelog.contract.base.errors import ConfigurationError

_PRIMES = (61, 251, 1021, 4093, 16381, 65521)
ROWS_A_BUCKET = 1_000
_GOLDEN = 0.618  # multiples of it are spread evenly, however many there are
_SHOWN = 12
ALL = "*"
"""Among the columns that are named: all others too."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source and its counterpart in the target."""

    name: str  # at the source
    target: str  # its name there
    form: Form
    native: Native  # its type at the source
    target_native: Native


@dataclass(frozen=True, slots=True)
class Buckets:
    """How keys are shared out: by their values where both sides have whole numbers, or by MD5."""

    count: int  # a prime: keys that are multiples of something are spread all the same
    by_value: bool  # whole numbers modulo the count
    first: int = 0  # of a sample
    taken: int = 0  # how many of them are compared; 0 for all

    @property
    def stride(self) -> int:
        """How far apart the places of two neighbours are: a sample has not only neighbours."""
        return max(int(self.count * _GOLDEN), 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison that both sides can carry out."""

    key: tuple[Column, ...]
    values: tuple[Column, ...]  # the other columns that are compared
    buckets: Buckets
    not_compared: Mapping[str, str] = field(default_factory=dict)  # columns, each with its reason
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return all columns, the key first."""
        return (*self.key, *self.values)


def bucket_count(rows: int) -> int:
    """Return the number of buckets for a number of rows.

    >>> bucket_count(0), bucket_count(1_000_000), bucket_count(10**9)
    (61, 1021, 65521)
    """
    enough = (prime for prime in _PRIMES if prime * ROWS_A_BUCKET >= rows)
    return next(enough, _PRIMES[-1])


def parse_sample(text: str) -> float:
    """Return the part of the keys that a sample has, from `1%` or `0.01`.

    Raises ConfigurationError: it is none.
    """
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ConfigurationError(f"--sample {text!r} is no part of the keys", hint="--sample 1%")
    return number


def parse_columns(text: str) -> dict[str, str]:
    """Return the target's name of each column of the source, from `a=b,c`.

    Raises ConfigurationError: a name is empty or there twice.
    """
    names: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        own, equals, other = (word.strip() for word in part.partition("="))
        if not own or (equals and not other) or own in names:
            raise ConfigurationError(
                f"--columns {part!r} names no column, or one twice",
                hint="--columns '*,price=unit_price': names of the source, and of the target",
            )
        names[own] = other or own
    return names


def make_plan(
    source: Mapping[str, Native],
    target: Mapping[str, Native],
    *,
    key: Sequence[str],
    columns: Mapping[str, str],
    buckets: Buckets,
) -> Plan:
    """Pair the columns.

    `columns` has the target's names by the source's: these must be comparable, and no others are
    compared unless `*` is among them.

    Raises ConfigurationError: a column is missing or cannot be compared that must be.
    """
    pairs: dict[str, Column] = {}
    reasons: dict[str, str] = {}
    notes: list[str] = []
    all_names = source if ALL in columns or not columns else ()
    for name in dict.fromkeys((*key, *columns, *all_names)):
        if name == ALL:
            continue
        must = name in columns or name in key
        own = source.get(name)
        if own is None:
            raise ConfigurationError(
                f'the source has no column "{name}"', hint=f"it has {_listed(source)}"
            )
        other_name = columns.get(name, name)
        other = target.get(other_name)
        if other is None:
            reason = f'the target has no "{other_name}"'
            if must:
                raise ConfigurationError(
                    f'column "{name}" cannot be compared: {reason}',
                    hint=f"--columns {name}=NAME; the target has {_listed(target)}",
                )
            reasons[name] = reason
            continue
        paired = pair(own, other)
        if paired is None:
            reason = f"{own.name} at the source, {other.name} in the target"
            if must:
                raise ConfigurationError(
                    f'column "{name}" cannot be compared: {reason}',
                    hint="docs/verify-anything.md says which types can be",
                )
            reasons[name] = reason
            continue
        if name in key and not have_one_text(own, other):
            raise ConfigurationError(
                f'key column "{name}" cannot be compared: {own.name} at the source, {other.name} '
                "in the target, and one value has several texts",
                hint="--query with a cast that gives both sides one type, such as "
                "'SELECT k::text AS k, … FROM …'",
            )
        if paired.note:
            notes.append(f"{name}: {paired.note}")
        pairs[name] = Column(name, other_name, paired.form, own, other)
    if not key:
        raise ConfigurationError(
            "the source has no primary key that could tell rows apart", hint="--key a,b"
        )
    values = tuple(column for name, column in pairs.items() if name not in key)
    return Plan(tuple(pairs[name] for name in key), values, buckets, reasons, tuple(notes))


def _listed(names: Mapping[str, object]) -> str:
    some = [*names][:_SHOWN]
    return ", ".join(some) + (", …" if len(names) > len(some) else "") if names else "none"


def are_whole(columns: Sequence[Column]) -> bool:
    """Tell whether all columns of a key are whole numbers on both sides, by their types."""
    return all(
        column.form == Form(Kind.INTEGER)
        and column.native.kind is Kind.INTEGER
        and column.target_native.kind is Kind.INTEGER
        and column.target_native.name not in _TOO_LARGE
        for column in columns
    )


_TOO_LARGE = {"HUGEINT", "UHUGEINT", "UBIGINT"}
