"""One comparison: digests of both sides, rows of differing buckets, and a watch over their keys."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Event

from changelog.compare.plan import ComparePlan, KeyBuckets, are_whole, bucket_count, make_plan
from changelog.compare.postgres import PostgresSide
from changelog.compare.report import Report, difference_of, key_shown, key_text
from changelog.compare.side import Digest, Key, Moment, Side
from changelog.compare.watch import KeyWatch, Lag, WatchOutcome
from changelog.contract.base.errors import SourceError

_GROUP_ROWS = 50_000
"""Rows of differing buckets that are fetched at a time: this bounds the memory."""
_NO_ROWS = Digest(0, 0)
_CHECKS = 5
"""How often a key that keeps coming and going is looked for in its bucket."""
_INTERRUPTS_EVERY_S = 0.2
_WHOLE = re.compile(r"-?[0-9]{1,30}")
PATIENCE_S = 60.0
"""How long keys that keep changing are looked at, or six times the lag bound if that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """The user's choices for a comparison."""

    key: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # names in the target by the source's
    settle_s: float = 10.0
    sample: float = 1.0
    most_shown: int = 20
    turn: int = field(default_factory=lambda: random.randrange(1 << 31))  # noqa: S311 - of samples
    """Which part of the keys a sample takes: successive turns take successive parts."""


def compare(
    source: PostgresSide,
    target: Side,
    request: CompareRequest,
    *,
    began: Moment | None = None,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] | None = None,
) -> Report:
    """Compare a copy with its source.

    `began` is a moment before either side was read, by default the one at which the source was
    opened.

    Raises:
        ConfigurationError: columns cannot be paired.
        SourceError, SinkError: a side cannot be read.
    """
    # A statement of hours in this thread would keep Ctrl-C waiting.
    stop = Event()
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(
            _compared,
            source,
            target,
            request,
            began=began,
            tell=tell,
            clock=clock,
            sleep=sleep or stop.wait,
        )
        try:
            return report.result()
        except BaseException:
            stop.set()
            while not report.done():
                source.interrupt()
                target.interrupt()
                wait([report], _INTERRUPTS_EVERY_S)
            raise


def _compared(
    source: PostgresSide,
    target: Side,
    request: CompareRequest,
    *,
    began: Moment | None,
    tell: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Report:
    started = clock()
    plan = _plan(source, target, request)
    for side in (source, target):
        side.bind(plan)
    tell(f"comparing digests of {len(plan.columns)} columns in {plan.buckets.count} buckets")
    with ThreadPoolExecutor(1) as pool:
        target_future = pool.submit(target.digests)
        source_digests, target_digests = source.digests(), target_future.result()
    differing = sorted(
        bucket
        for bucket in {*source_digests, *target_digests}
        if source_digests.get(bucket, _NO_ROWS) != target_digests.get(bucket, _NO_ROWS)
    )
    lag = Lag(request.settle_s, max(PATIENCE_S, 6 * request.settle_s))
    watch = KeyWatch(
        plan,
        source.look,
        target.look,
        lag,
        clock=clock,
        sleep=sleep,
        most_shown=request.most_shown,
    )
    if differing:
        tell(f"{len(differing)} buckets differ: looking at their rows")
    groups = _groups(differing, source_digests, target_digests)
    outcome, rest = _watch_groups(source, target, watch, plan, groups)
    ranks = {plan.rank_of(key) for key in outcome.open} | {*map(plan.buckets.rank, rest)}
    return Report(
        source=source.place,
        target=target.place,
        source_rows=sum(digest.rows for digest in source_digests.values()),
        target_rows=sum(digest.rows for digest in target_digests.values()),
        mismatches=len(outcome.mismatches),
        is_at_least=bool(rest),
        differences=tuple(
            difference_of(plan, differing_key, target.writer(differing_key.key))
            for differing_key in outcome.shown
        ),
        open=tuple(key_shown(plan, key) for key in outcome.open),
        compared=tuple(column.name for column in plan.columns),
        not_compared=plan.not_compared,
        notes=(*plan.notes, *source.notes(), *target.notes()),
        settle_s=request.settle_s,
        sample=request.sample,
        looks=outcome.looks,
        seconds=clock() - started,
        plan=plan,
        refuted=outcome.mismatches,
        undecided=frozenset(ranks),
        began=began or source.opened,
        ended=source.moment(),
    )


def _plan(source: PostgresSide, target: Side, request: CompareRequest) -> ComparePlan:
    count = bucket_count(source.estimate())
    sampled = 0 if request.sample == 1 else max(round(count * request.sample), 1)
    first = request.turn * sampled % count
    buckets = KeyBuckets(count, by_value=False, first=first, sampled=sampled)
    plan = make_plan(
        source.columns(),
        target.columns(),
        key=request.key or source.key,
        columns=request.columns,
        buckets=buckets,
    )
    probe = source.sent_probe()
    return replace(
        plan,
        buckets=replace(buckets, by_value=are_whole(plan.key)),
        hashes=probe is not None and probe == target.sent_probe(),
    )


def _groups(
    differing: Sequence[int], source: Mapping[int, Digest], target: Mapping[int, Digest]
) -> Iterator[list[int]]:
    """Split differing buckets into groups whose rows fit in memory."""
    group: list[int] = []
    rows = 0
    for bucket in differing:
        bucket_rows = source.get(bucket, _NO_ROWS).rows + target.get(bucket, _NO_ROWS).rows
        if group and rows + bucket_rows > _GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(bucket)
        rows += bucket_rows
    if group:
        yield group


def _watch_groups(
    source: Side, target: Side, watch: KeyWatch, plan: ComparePlan, groups: Iterator[list[int]]
) -> tuple[WatchOutcome, list[int]]:
    """Watch the keys of each group, up to the first group with mismatches.

    Returns the outcome, and the buckets of the groups that remain after that one.
    """
    mismatches: list[Key] = []
    opened: list[Key] = []
    looks = 0
    for group in groups:
        outcome = _watched(source, target, watch, plan, group)
        looks += outcome.looks
        mismatches += outcome.mismatches
        opened += outcome.open
        if mismatches:
            rest = [bucket for more in groups for bucket in more]
            return replace(outcome, open=tuple(opened), looks=looks), rest
    return WatchOutcome((), tuple(opened), (), looks), []


def _watched(
    source: Side, target: Side, watch: KeyWatch, plan: ComparePlan, buckets: Sequence[int]
) -> WatchOutcome:
    """Watch the differing keys of some buckets.

    A key that a side has no row of is looked for in the rows of its bucket. A row that is read with
    its bucket and not by its key would pass for a lost or a deleted one.

    Raises SourceError: a row is there, and is not found by its key.
    """
    outcome = watch.run(_differing_keys(source, target, buckets))
    checks = 0
    while there := _read_although_absent(source, target, buckets, outcome):
        if checks == _CHECKS:
            raise SourceError(
                f"{source.place} or {target.place} has rows that are not found by their key, such "
                f"as {key_text(key_shown(plan, min(there, key=_order)))}",
                hint="report it with the types of the key's columns; until then compare by --query "
                "with the key cast to text",
            )
        checks += 1
        again = watch.run(sorted(there, key=_order))  # some of them have come since
        outcome = WatchOutcome(
            (*(key for key in outcome.mismatches if key not in there), *again.mismatches),
            (*outcome.open, *again.open),
            (*(shown for shown in outcome.shown if shown.key not in there), *again.shown),
            outcome.looks + again.looks,
            again.absent,
        )
    return outcome


def _read_although_absent(
    source: Side, target: Side, buckets: Sequence[int], outcome: WatchOutcome
) -> set[Key]:
    """Return the keys of which a side has a row in these buckets, but none when asked by key."""
    return {
        key
        for side, absent in zip((source, target), outcome.absent, strict=True)
        if absent
        for key, _ in side.rows(buckets)
        if key in absent
    }


def _differing_keys(source: Side, target: Side, buckets: Sequence[int]) -> list[Key]:
    """Return the keys whose rows have different digests on the two sides."""
    with ThreadPoolExecutor(1) as pool:
        target_future = pool.submit(lambda: Counter(target.rows(buckets)))
        counts = Counter(source.rows(buckets))
        counts.subtract(target_future.result())
    return sorted({key for (key, _), count in counts.items() if count}, key=_order)


def _order(key: Key) -> list[tuple[bool, int, str]]:
    """Return the sort key of a key: numbers by value, nulls first."""
    return [
        (text is not None, int(text) if text and _WHOLE.fullmatch(text) else 0, text or "")
        for text in key
    ]
