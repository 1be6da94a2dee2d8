"""Looks at differing keys again until they agree or the difference has outlasted the lag. Pure.

A key agrees once the target has a value that the source was seen to have within the lag bound. It
is a mismatch if neither side has changed for the whole bound and they still differ; each change of
either side restarts the bound. A key that still changes when patience ends is open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from changelog.compare.plan import ComparePlan
from changelog.compare.side import Key, SideRow
from changelog.compare.texts import normal, row_text

Look = Callable[[Sequence[Key]], list[SideRow]]
State = tuple[bytes, ...]
"""The sorted digests of a key's rows; empty if the key does not exist."""
KeyStates = dict[Key, tuple[State, tuple[str, ...]]]
_NO_STATE: tuple[State, tuple[str, ...]] = ((), ())

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Lag:
    """The time that the target may lag, and the time for which changing keys are looked at."""

    bound_s: float
    patience_s: float


@dataclass(slots=True)
class _Watched:
    """The state of one key on both sides."""

    since: float  # when the look ended that was the first to see this state
    source: State
    versions: tuple[str, ...]
    target: State
    source_states: list[tuple[float, State]] = field(default_factory=list)  # within the bound


@dataclass(frozen=True, slots=True)
class Differing:
    """A key whose rows differ, with its rows on both sides."""

    key: Key
    source: tuple[SideRow, ...]
    target: tuple[SideRow, ...]


@dataclass(frozen=True, slots=True)
class WatchOutcome:
    """The verdicts on the watched keys."""

    mismatches: tuple[Key, ...]
    open: tuple[Key, ...]  # keys that kept changing until patience ended
    shown: tuple[Differing, ...]  # some of the mismatches with their rows
    looks: int
    absent: tuple[frozenset[Key], frozenset[Key]] = (frozenset(), frozenset())
    """The decided keys that the source has no row of, and the ones that the target has none of."""


def normal_row(plan: ComparePlan, row: SideRow) -> tuple[str | None, ...]:
    """Return the normal texts of a row's columns."""
    columns = zip(plan.columns, (*row.key, *row.texts), strict=True)
    return tuple(None if text is None else normal(column.form, text) for column, text in columns)


def states_of(plan: ComparePlan, rows: Iterable[SideRow]) -> KeyStates:
    """Return the state and the versions of the rows of each key."""
    grouped: dict[Key, list[SideRow]] = {}
    for row in rows:
        grouped.setdefault(row.key, []).append(row)
    return {
        key: (
            tuple(sorted(_digest(normal_row(plan, row)) for row in of_key)),
            tuple(sorted(row.version for row in of_key)),
        )
        for key, of_key in grouped.items()
    }


def rows_of(states: KeyStates, key: Key) -> State:
    """Return the digests of a key's rows."""
    return states.get(key, _NO_STATE)[0]


def _digest(texts: tuple[str | None, ...]) -> bytes:
    return hashlib.blake2b(
        row_text(texts).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


class KeyWatch:
    """Looks at differing keys repeatedly until each has a verdict."""

    def __init__(
        self,
        plan: ComparePlan,
        source: Look,
        target: Look,
        lag: Lag,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        most_shown: int,
    ) -> None:
        """Remember how to look at the two sides."""
        self._plan, self._source, self._target, self._lag = plan, source, target, lag
        self._clock, self._sleep, self._most_shown = clock, sleep, most_shown
        self._absent: tuple[set[Key], set[Key]] = (set(), set())

    def run(self, keys: Sequence[Key]) -> WatchOutcome:
        """Look at the keys until each agrees or is a mismatch, or until patience ends."""
        began = self._clock()
        watched: dict[Key, _Watched | None] = dict.fromkeys(keys)
        mismatches: list[Key] = []
        self._absent = (set(), set())
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
        source, target = map(frozenset, self._absent)
        return WatchOutcome(
            tuple(mismatches), tuple(watched), tuple(shown), looks, (source, target)
        )

    def _look(self, watched: dict[Key, _Watched | None]) -> list[Key]:
        """Look once: remove the decided keys from `watched` and return the mismatches."""
        keys = [*watched]
        began = self._clock()
        # The target first: every value that it has by then, the source has had before.
        target = states_of(self._plan, self._target(keys))
        source = states_of(self._plan, self._source(keys))
        now = self._clock()  # a look may be slow: the source may have this state only since now
        refuted = []
        for key in keys:
            source_state, versions = source.get(key, _NO_STATE)
            target_state = rows_of(target, key)
            state = watched[key]
            if state is None or (source_state, versions, target_state) != (
                state.source,
                state.versions,
                state.target,
            ):
                earlier_states = [] if state is None else state.source_states
                state = watched[key] = _Watched(
                    now, source_state, versions, target_state, earlier_states
                )
            oldest = now - self._lag.bound_s
            state.source_states = [past for past in state.source_states if past[0] >= oldest]
            if source_state == target_state or any(
                target_state == past for _, past in state.source_states
            ):
                del watched[key]
            elif began - state.since >= self._lag.bound_s:
                del watched[key]
                refuted.append(key)
            else:
                state.source_states.append((now, source_state))
                continue
            for absent, rows in zip(self._absent, (source_state, target_state), strict=True):
                if not rows:
                    absent.add(key)
        return refuted

    def _differing(self, keys: Sequence[Key]) -> list[Differing]:
        if not keys:
            return []
        source, target = _by_key(self._source(keys)), _by_key(self._target(keys))
        return [Differing(key, source.get(key, ()), target.get(key, ())) for key in keys]


def _by_key(rows: Iterable[SideRow]) -> Mapping[Key, tuple[SideRow, ...]]:
    grouped: dict[Key, tuple[SideRow, ...]] = {}
    for row in rows:
        grouped[row.key] = (*grouped.get(row.key, ()), row)
    return grouped
