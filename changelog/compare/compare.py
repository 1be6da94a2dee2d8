"""One comparison: digests of both sides, rows of buckets that differ, and the watch over them."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from changelog.compare.plan import Buckets, Plan, are_whole, bucket_count, make_plan
from changelog.compare.postgres import PostgresSide
from changelog.compare.report import Report, difference_of, key_shown
from changelog.compare.side import Digest, Key, Side
from changelog.compare.watch import Lag, Outcome, Watch

_GROUP_ROWS = 50_000
"""So many rows of differing buckets are looked into at a time: bounded memory."""
_MOST_KEYS = 20_000
_NOTHING = Digest(0, 0)
_WHOLE = re.compile(r"-?[0-9]{1,30}")
PATIENCE_S = 60.0
"""So long, or six times the lag bound, keys that keep changing are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The choices of a comparison."""

    key: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # the target's by the source's
    settle_s: float = 10.0
    sample: float = 1.0
    most_shown: int = 20


def compare(
    source: PostgresSide,
    target: Side,
    request: Request,
    *,
    tell: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Compare a copy with its source.

    Raises:
        ConfigurationError: columns cannot be paired.
        SourceError, SinkError: a side cannot be read.
    """
    began = clock()
    plan = _plan(source, target, request)
    for side in (source, target):
        side.bind(plan)
    tell(f"digests of {len(plan.columns)} columns in {plan.buckets.count} buckets")
    with ThreadPoolExecutor(1) as pool:
        of_target = pool.submit(target.digests)
        digests = source.digests(), of_target.result()
    differing = sorted(
        bucket
        for bucket in {*digests[0], *digests[1]}
        if digests[0].get(bucket, _NOTHING) != digests[1].get(bucket, _NOTHING)
    )
    lag = Lag(request.settle_s, max(PATIENCE_S, 6 * request.settle_s))
    watch = Watch(
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
    outcome, is_at_least = _settled(source, target, watch, _groups(differing, *digests))
    standby = ("the source is a standby: its own lag counts too",) if source.is_standby() else ()
    return Report(
        source=source.place,
        target=target.place,
        source_rows=sum(digest.rows for digest in digests[0].values()),
        target_rows=sum(digest.rows for digest in digests[1].values()),
        mismatches=len(outcome.mismatches),
        is_at_least=is_at_least,
        differences=tuple(difference_of(plan, differing_key) for differing_key in outcome.shown),
        open=tuple(key_shown(plan, key) for key in outcome.open),
        compared=tuple(column.name for column in plan.columns),
        not_compared=plan.not_compared,
        notes=(*plan.notes, *standby),
        settle_s=request.settle_s,
        sample=request.sample,
        looks=outcome.looks,
        seconds=clock() - began,
    )


def _plan(source: PostgresSide, target: Side, request: Request) -> Plan:
    count = bucket_count(source.estimate())
    taken = 0 if request.sample == 1 else max(round(count * request.sample), 1)
    buckets = Buckets(count, by_value=False, first=random.randrange(count), taken=taken)  # noqa: S311
    plan = make_plan(
        source.columns(),
        target.columns(),
        key=request.key or source.key,
        columns=request.columns,
        buckets=buckets,
    )
    return replace(plan, buckets=replace(buckets, by_value=are_whole(plan.key)))


def _groups(
    differing: Sequence[int], source: Mapping[int, Digest], target: Mapping[int, Digest]
) -> Iterator[list[int]]:
    """Share differing buckets out to groups of which the rows fit in memory."""
    group: list[int] = []
    rows = 0
    for bucket in differing:
        of_bucket = source.get(bucket, _NOTHING).rows + target.get(bucket, _NOTHING).rows
        if group and rows + of_bucket > _GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(bucket)
        rows += of_bucket
    if group:
        yield group


def _settled(
    source: Side, target: Side, watch: Watch, groups: Iterator[list[int]]
) -> tuple[Outcome, bool]:
    """Watch the keys of each group, to the first group with mismatches; tells if more are left."""
    mismatches: list[Key] = []
    opened: list[Key] = []
    looks = 0
    for group in groups:
        keys = _differing_keys(source, target, group)
        outcome = watch.run(keys)
        looks += outcome.looks
        mismatches += outcome.mismatches
        opened += outcome.open
        if mismatches:
            more = next(groups, None) is not None
            return Outcome(tuple(mismatches), tuple(opened), outcome.shown, looks), more
    return Outcome((), tuple(opened), (), looks), False


def _differing_keys(source: Side, target: Side, buckets: Sequence[int]) -> list[Key]:
    """Return the keys whose rows have other digests on both sides."""
    counts: Counter[tuple[Key, int]] = Counter()
    for row in target.rows(buckets):
        counts[row] += 1
    for row in source.rows(buckets):
        counts[row] -= 1
    return sorted({key for (key, _), count in counts.items() if count}, key=_order)


def _order(key: Key) -> list[tuple[bool, int, str]]:
    """Return the place of a key in a list: numbers by their value, nulls first."""
    return [
        (text is not None, int(text) if text and _WHOLE.fullmatch(text) else 0, text or "")
        for text in key
    ]
