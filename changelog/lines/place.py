"""Places in a topic, as the command line names them: `--from` and `--until`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from changelog.contract.base.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET = re.compile(r"\d{1,19}")
_FROM_END = re.compile(r"-\d{1,19}")


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record that there is."""


@dataclass(frozen=True, slots=True)
class End:
    """After the last record that there is when the command starts."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the consumer group ended."""


@dataclass(frozen=True, slots=True)
class At:
    """An offset, the same in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """Some offsets before the end of each partition."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Since:
    """The first record of each partition with this time or a later one."""

    ms: int  # milliseconds since 1970


Start = FirstRecord | End | Stored | At | BeforeEnd | Since
Until = End | At | Since


class Bounds(NamedTuple):
    """The offsets `[first, end)` of a partition's records."""

    first: int
    end: int


def parse_start(text: str) -> Start:
    """Read `beginning`, `end`, `stored`, an offset, `-N` (before the end) or `@TIME`.

    >>> parse_start("-5")
    BeforeEnd(offsets=5)

    Raises ConfigurationError: it is none of these.
    """
    named: dict[str, Start] = {"beginning": FirstRecord(), "end": End(), "stored": Stored()}
    if text in named:
        return named[text]
    if _FROM_END.fullmatch(text):
        return BeforeEnd(int(text[1:]))
    start = _offset_or_time(text)
    if start is None:
        raise ConfigurationError(
            f'--from "{text}" is no place in a topic',
            hint="beginning, end, stored, an offset such as 42, -10 for ten offsets before the "
            "end, or @2026-01-31T12:00:00Z",
        )
    return start


def parse_until(text: str) -> Until:
    """Read `end`, an offset or `@TIME`: what is at that place is left out.

    Raises ConfigurationError: it is none of these.
    """
    until = End() if text == "end" else _offset_or_time(text)
    if until is None:
        raise ConfigurationError(
            f'--until "{text}" is no place in a topic',
            hint="end, an offset such as 42, or @2026-01-31T12:00:00Z",
        )
    return until


def _offset_or_time(text: str) -> At | Since | None:
    if _OFFSET.fullmatch(text):
        return At(int(text))
    return Since(_milliseconds(text[1:])) if text.startswith("@") else None


def _milliseconds(text: str) -> int:
    """Read a time: milliseconds since 1970, or ISO 8601, without a zone UTC."""
    if _OFFSET.fullmatch(text):
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f'"@{text}" is no time',
            hint="@2026-01-31T12:00:00Z, or milliseconds since 1970: @1769860800000",
        ) from error
    moment = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    # Rounded up: a record of the millisecond before is older than what was asked for.
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def first_offsets(
    place: Start, bounds: Mapping[int, Bounds], since: Mapping[int, int | None]
) -> dict[int, int]:
    """Return per partition the offset at which a read begins.

    `since` has, of a time, the first record of each partition since then; None where there is none.

    Raises ConfigurationError: a partition does not have the offset.
    """
    match place:
        case At(offset):
            _check(offset, bounds)
            return dict.fromkeys(bounds, offset)
        case BeforeEnd(offsets):
            return {n: max(bound.first, bound.end - offsets) for n, bound in bounds.items()}
        case Since():
            return {n: _or_end(since[n], bound) for n, bound in bounds.items()}
        case End():
            return {n: bound.end for n, bound in bounds.items()}
        case FirstRecord() | Stored():
            return {n: bound.first for n, bound in bounds.items()}


def _or_end(offset: int | None, bounds: Bounds) -> int:
    return bounds.end if offset is None else max(offset, bounds.first)


def _check(offset: int, bounds: Mapping[int, Bounds]) -> None:
    lacking = {n: bound for n, bound in bounds.items() if not bound.first <= offset <= bound.end}
    if lacking:
        ranges = ", ".join(f"partition {n} has {b.first} to {b.end}" for n, b in lacking.items())
        raise ConfigurationError(
            f"offset {offset} is not there: {ranges}",
            hint="--partition chooses partitions, --from beginning starts with what there is",
        )


def end_offsets(
    place: Until | None,
    bounds: Mapping[int, Bounds],
    since: Mapping[int, int | None],
    *,
    now_ms: int,
) -> dict[int, int | None]:
    """Return per partition the offset at which a read ends, or None if that is not known yet.

    `since` is as for `first_offsets`. A time that has passed by `now_ms` ends a read with what
    there is.
    """
    match place:
        case None:
            return dict.fromkeys(bounds)
        case End():
            return {n: bound.end for n, bound in bounds.items()}
        case At(offset):
            return dict.fromkeys(bounds, offset)
        case Since(ms):
            rest = {n: bound.end if ms <= now_ms else None for n, bound in bounds.items()}
            return {n: rest[n] if since[n] is None else since[n] for n in bounds}
