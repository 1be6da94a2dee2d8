"""The plan of a comparison: paired columns, the key, buckets, and columns left out. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from changelog.compare.forms import CompareForm, Native, TypeFamily, have_one_text, pair
from changelog.compare.texts import row_text
from changelog.contract.base.errors import ConfigurationError

_PRIMES = (61, 251, 1021, 4093, 16381, 65521)
ROWS_A_BUCKET = 1_000
_GOLDEN = 0.618  # the golden ratio: its multiples modulo 1 are spread evenly, however many
_MOST_LISTED = 12
_COLUMN_NAME = r'\s*("(?:[^"]|"")+"|[^",=\s](?:[^",=]*[^",=\s])?)\s*'
_COLUMN = re.compile(rf"{_COLUMN_NAME}(?:={_COLUMN_NAME})?(?:,|$)")
ALL = "*"
"""The entry of `--columns` that stands for all columns that are not named."""


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column of the source and its counterpart in the target."""

    name: str  # at the source
    target: str  # its name in the target
    form: CompareForm
    native: Native  # its type at the source
    target_native: Native


@dataclass(frozen=True, slots=True)
class KeyBuckets:
    """The assignment of keys to buckets: integers by value, other keys by MD5."""

    count: int  # a prime, so that keys with a common factor are spread over all buckets too
    by_value: bool  # whether the key consists of integers: the bucket is their value modulo count
    first: int = 0  # the first bucket of a sample
    sampled: int = 0  # how many buckets are compared; 0 for all

    @property
    def stride(self) -> int:
        """Return the factor that spreads a sample over distant buckets instead of neighbours."""
        return max(int(self.count * _GOLDEN), 1)

    def rank(self, bucket: int) -> int:
        """Return a bucket's place in the order in which samples take buckets."""
        return bucket * self.stride % self.count

    def compared(self) -> list[int]:
        """Return the ranks of the buckets that are compared."""
        return [(self.first + place) % self.count for place in range(self.sampled or self.count)]


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """The plan of a comparison, which both sides carry out."""

    key: tuple[ComparedColumn, ...]
    values: tuple[ComparedColumn, ...]  # the compared columns outside the key
    buckets: KeyBuckets
    not_compared: Mapping[str, str] = field(default_factory=dict)  # the reason by column
    notes: tuple[str, ...] = ()
    hashes: bool = False  # whether digests are of the bytes that PostgreSQL sends, not of texts

    @property
    def columns(self) -> tuple[ComparedColumn, ...]:
        """Return all columns, the key first."""
        return (*self.key, *self.values)

    def rank_of(self, key: Sequence[str | None]) -> int:
        """Return the rank of the bucket to which a key's canonical texts belong."""
        count = self.buckets.count
        if not self.buckets.by_value:
            encoded = row_text(key).encode("utf-8", "surrogatepass")
            digest = hashlib.md5(encoded, usedforsecurity=False).digest()
            return self.buckets.rank((int.from_bytes(digest[:4]) >> 1) % count)
        mixed = 0
        for text in key:
            mixed = (mixed * 31 + int(text or 0)) % count
        return self.buckets.rank(mixed)


def bucket_count(rows: int) -> int:
    """Return the number of buckets for a number of rows.

    >>> bucket_count(0), bucket_count(1_000_000), bucket_count(10**9)
    (61, 1021, 65521)
    """
    enough = (prime for prime in _PRIMES if prime * ROWS_A_BUCKET >= rows)
    return next(enough, _PRIMES[-1])


def parse_sample(text: str) -> float:
    """Return the fraction of the keys to compare, from `1%` or `0.01`.

    Raises ConfigurationError: the text is not a fraction above 0 and up to 1.
    """
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ConfigurationError(f"--sample {text!r} is not a part of the keys", hint="--sample 1%")
    return number


def parse_columns(text: str, option: str = "--columns") -> dict[str, str]:
    """Return the target's column name by the source's, from `a=b,c`; quotes as in SQL.

    Raises ConfigurationError: a name is empty, or a column is named twice.

    >>> parse_columns('a=b, "c,d"="e=f"')
    {'a': 'b', 'c,d': 'e=f'}
    """
    names: dict[str, str] = {}
    place = 0
    while place < len(text):
        part = _COLUMN.match(text, place)
        name = _unquoted(part[1]) if part else ""
        if part is None or name in names:
            raise ConfigurationError(
                f"{option} {text!r} has an empty name, or a column that is named twice",
                hint="--columns '*,price=unit_price': the source's name, then the target's; a name "
                'with a comma, = or a quote in it stands in "quotes"',
            )
        names[name] = _unquoted(part[2]) if part[2] else name
        place = part.end()
    return names


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def make_plan(
    source: Mapping[str, Native],
    target: Mapping[str, Native],
    *,
    key: Sequence[str],
    columns: Mapping[str, str],
    buckets: KeyBuckets,
) -> ComparePlan:
    """Pair the columns of the two sides.

    `columns` has the target's names by the source's. These columns must be comparable, and no
    others are compared unless `*` is among the names.

    Raises ConfigurationError: a column that must be compared is missing or cannot be.
    """
    pairs: dict[str, ComparedColumn] = {}
    reasons: dict[str, str] = {}
    notes: list[str] = []
    all_names = source if ALL in columns or not columns else ()
    for name in dict.fromkeys((*key, *(name for name in columns if name != ALL), *all_names)):
        is_required = name in columns or name in key
        source_type = source.get(name)
        if source_type is None:
            raise ConfigurationError(
                f'the source has no column "{name}"', hint=f"it has {_listed(source)}"
            )
        target_name = columns.get(name, name)
        target_type = target.get(target_name)
        if target_type is None:
            reason = f'the target has no "{target_name}"'
            if is_required:
                raise ConfigurationError(
                    f'column "{name}" cannot be compared: {reason}',
                    hint=f"--columns {name}=NAME; the target has {_listed(target)}",
                )
            reasons[name] = reason
            continue
        paired = pair(source_type, target_type)
        if paired is None:
            reason = f"{source_type.name} at the source, {target_type.name} in the target"
            if is_required:
                raise ConfigurationError(
                    f'column "{name}" cannot be compared: {reason}',
                    hint="docs/verify-anything.md lists the types that can be compared",
                )
            reasons[name] = reason
            continue
        if name in key and not have_one_text(source_type, target_type):
            raise ConfigurationError(
                f'key column "{name}" cannot be compared: {source_type.name} at the source, '
                f"{target_type.name} in the target, and one value has several texts",
                hint="--query with a cast that gives both sides one type, such as "
                "'SELECT k::text AS k, … FROM …'",
            )
        if paired.note:
            notes.append(f"{name}: {paired.note}")
        pairs[name] = ComparedColumn(name, target_name, paired.form, source_type, target_type)
    if not key:
        raise ConfigurationError("the source has no primary key to identify rows", hint="--key a,b")
    values = tuple(column for name, column in pairs.items() if name not in key)
    return ComparePlan(tuple(pairs[name] for name in key), values, buckets, reasons, tuple(notes))


def _listed(names: Mapping[str, object]) -> str:
    first_names = [*names][:_MOST_LISTED]
    rest = ", …" if len(names) > _MOST_LISTED else ""
    return ", ".join(first_names) + rest if names else "none"


def are_whole(columns: Sequence[ComparedColumn]) -> bool:
    """Return whether all columns of a key are integers of at most 64 bits on both sides."""
    return all(
        column.form == CompareForm(TypeFamily.INTEGER)
        and column.native.kind is TypeFamily.INTEGER
        and column.target_native.kind is TypeFamily.INTEGER
        and column.target_native.name not in _TOO_LARGE
        for column in columns
    )


_TOO_LARGE = {"HUGEINT", "UHUGEINT", "UBIGINT"}
