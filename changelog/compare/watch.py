"""Keys that differ, looked at again until they agree or a difference has outlived the lag. Pure.

A key agrees once the target has a value that the source was seen to have within the lag bound. It
is a mismatch when neither side has changed for the whole bound and they differ all the same; each
change of either side begins the bound again. A key that still changes when patience ends is open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from changelog.compare.plan import Plan
from changelog.compare.side import Key, Row
from changelog.compare.texts import normal, row_text

Look = Callable[[Sequence[Key]], list[Row]]
State = tuple[bytes, ...]
"""The rows of a key in short, in an order of their own: none when the key is not there."""

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How long the target may lag, and how long keys that keep changing are looked at."""

    bound_s: float
    patience_s: float


@dataclass(slots=True)
class _Watched:
    """State of one key."""

    since: float  # when both sides became as they are
    source: State
    versions: tuple[str, ...]
    target: State
    seen: list[tuple[float, State]] = field(default_factory=list)  # the source's, within the bound


@dataclass(frozen=True, slots=True)
class Differing:
    """A key whose rows differ, with its rows on both sides."""

    key: Key
    source: tuple[Row, ...]
    target: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdicts on the keys that were looked at."""

    mismatches: tuple[Key, ...]
    open: tuple[Key, ...]  # which changed until the end
    shown: tuple[Differing, ...]  # some of the mismatches with their rows
    looks: int


def normal_row(plan: Plan, row: Row) -> tuple[str | None, ...]:
    """Return a row's texts, one for all that mean the same value."""
    columns = zip(plan.columns, (*row.key, *row.texts), strict=True)
    return tuple(None if text is None else normal(column.form, text) for column, text in columns)


def _states(plan: Plan, rows: Iterable[Row]) -> dict[Key, tuple[State, tuple[str, ...]]]:
    grouped: dict[Key, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row.key, []).append(row)
    return {
        key: (
            tuple(sorted(_digest(normal_row(plan, row)) for row in of_key)),
            tuple(sorted(row.version for row in of_key)),
        )
        for key, of_key in grouped.items()
    }


def _digest(texts: tuple[str | None, ...]) -> bytes:
    return hashlib.blake2b(
        row_text(texts).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


class Watch:
    """Looks at keys again and again."""

    def __init__(
        self,
        plan: Plan,
        source: Look,
        target: Look,
        lag: Lag,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        most_shown: int,
    ) -> None:
        """Look at nothing yet."""
        self._plan, self._source, self._target, self._lag = plan, source, target, lag
        self._clock, self._sleep, self._most_shown = clock, sleep, most_shown

    def run(self, keys: Sequence[Key]) -> Outcome:
        """Look until each key has agreed, has been a mismatch for the bound, or patience ends."""
        began = self._clock()
        watched: dict[Key, _Watched | None] = dict.fromkeys(keys)
        mismatches: list[Key] = []
        shown: list[Differing] = []
        pause, looks = _FIRST_PAUSE_S, 0
        while watched:
            looks += 1
            refuted = self._look(watched)
            mismatches += refuted
            room = self._most_shown - len(shown)
            shown += self._differing(refuted[: max(room, 0)])
            now = self._clock()
            if now - began >= self._lag.patience_s and looks > 1:
                break
            if watched:
                self._sleep(min(pause, max(self._lag.bound_s / 2, _FIRST_PAUSE_S)))
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        return Outcome(tuple(mismatches), tuple(watched), tuple(shown), looks)

    def _look(self, watched: dict[Key, _Watched | None]) -> list[Key]:
        """Look once; takes the keys that are decided out and returns the mismatches."""
        keys = [*watched]
        # The target first: what it has then, the source has had before.
        target = _states(self._plan, self._target(keys))
        at = self._clock()
        source = _states(self._plan, self._source(keys))
        refuted = []
        for key in keys:
            own, versions = source.get(key, ((), ()))
            other, _ = target.get(key, ((), ()))
            state = watched[key]
            if state is None or (own, versions, other) != (
                state.source,
                state.versions,
                state.target,
            ):
                seen = [] if state is None else state.seen
                state = watched[key] = _Watched(at, own, versions, other, seen)
            first = at - self._lag.bound_s
            state.seen = [past for past in state.seen if past[0] >= first]
            if own == other or any(other == past for _, past in state.seen):
                del watched[key]
            elif at - state.since >= self._lag.bound_s:
                del watched[key]
                refuted.append(key)
            else:
                state.seen.append((at, own))
        return refuted

    def _differing(self, keys: Sequence[Key]) -> list[Differing]:
        if not keys:
            return []
        source, target = _by_key(self._source(keys)), _by_key(self._target(keys))
        return [Differing(key, source.get(key, ()), target.get(key, ())) for key in keys]


def _by_key(rows: Iterable[Row]) -> Mapping[Key, tuple[Row, ...]]:
    grouped: dict[Key, tuple[Row, ...]] = {}
    for row in rows:
        grouped[row.key] = (*grouped.get(row.key, ()), row)
    return grouped
