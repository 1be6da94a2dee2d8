"""A topic's offsets in shares, which are read in parallel (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changelog.contract.base.errors import LogError

MANY_OFFSETS = 200_000
"""From so many on several threads read: a consumer's start takes as long as some ten thousand."""
Share = dict[int, tuple[int, int]]
"""First offset and end of a slice of each partition."""


def shared_out(starts: Sequence[int], ends: Sequence[int], threads: int) -> list[Share]:
    """Cut the offsets of a topic into a share for each thread; one where more does not pay.

    A share has a slice of each partition, the old of one and the young of another: where a topic
    was cleaned, the old offsets hold fewer records. Each offset is in one share.
    """
    spans = [max(0, end - start) for start, end in zip(starts, ends, strict=True)]
    count = threads if sum(spans) >= MANY_OFFSETS else 1
    shares = []
    for number in range(count):
        share: Share = {}
        for part, (start, span) in enumerate(zip(starts, spans, strict=True)):
            slice_ = (number + part) % count
            first, end = start + span * slice_ // count, start + span * (slice_ + 1) // count
            if first < end:
                share[part] = first, end
        if share:
            shares.append(share)
    return shares


def require_whole(
    topic: str, starts: Sequence[int], ends: Sequence[int], read: Iterable[Share]
) -> None:
    """Require that each offset was read exactly once.

    Raises:
        LogError: some were read twice, or not at all.
    """
    slices: dict[int, list[tuple[int, int]]] = {part: [] for part in range(len(ends))}
    for share in read:
        for part, slice_ in share.items():
            slices[part].append(slice_)
    for part, (start, end) in enumerate(zip(starts, ends, strict=True)):
        reached = start
        for first, behind in sorted(slices[part]):
            if first != reached:
                raise _not_whole(topic, part, *sorted((first, reached)), twice=first < reached)
            reached = behind
        if reached != max(start, end):
            raise _not_whole(topic, part, *sorted((reached, end)), twice=reached > end)


def _not_whole(topic: str, part: int, first: int, end: int, *, twice: bool) -> LogError:
    how = "read twice" if twice else "not read"
    return LogError(
        f'topic "{topic}", partition {part}: the offsets from {first} to {end} were {how}',
        hint="a mistake in the verifier: report it",
    )
