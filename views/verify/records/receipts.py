"""Receipts of tasks for their parts of a topic, and the check that they cover the whole. Pure.

They are sent as text, so that nothing from another machine is unpickled. A receipt that is missing,
came twice, or is of another run or of other offsets ends the verification.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from changelog.contract.base.errors import (
    ChangelogError,
    CorruptRecordError,
    LogError,
    SinkError,
    UnavailableLogError,
    VerdictError,
)

MANY_OFFSETS = 200_000
"""From so many on, several threads read: starting a consumer takes as long as reading some ten
thousand."""
Share = dict[int, tuple[int, int]]
"""First offset and end of a slice of each partition."""


def shared_out(starts: Sequence[int], ends: Sequence[int], threads: int) -> list[Share]:
    """Cut the offsets of a topic into a share for each thread; one for a short topic.

    A share has a slice of each partition, an old one of one and a young one of another, since in a
    cleaned topic old offsets hold fewer records. Each offset is in exactly one share.
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

    Raises LogError: some were read twice, or not at all.
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


PART_OFFSETS = 500_000
"""A part of so many offsets is worth a task of its own."""
_KINDS = {
    kind.__name__: kind
    for kind in (CorruptRecordError, SinkError, UnavailableLogError, VerdictError)
}
_MISTAKE = "what ran the tasks lost or mixed up their results: run the verification again"


@dataclass(frozen=True, slots=True)
class TopicPart:
    """Whole partitions of a topic."""

    number: int  # of the part, from 0
    share: Share  # first offset and end of each partition

    @property
    def offsets(self) -> int:
        """Return the number of offsets in this part."""
        return sum(end - start for start, end in self.share.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A task's account of the part that it has read."""

    run: str  # id of the verification
    part: int  # number of the part
    share: Share  # the offsets that were read
    records: int  # how many were there
    rows: int  # how many are live rows, written to the file
    later: tuple[int, int] | None  # place of the first record after the cut, if any
    # place of a record whose key belongs to another partition, if any
    astray: tuple[int, int] | None
    frames: tuple[str, ...]  # the first bytes of keys, in hex, where no schema id is pinned
    # places of the last records of keys that cannot be read
    left_out: tuple[tuple[int, int], ...]
    file: str  # name of the file of rows
    size: int  # of the file in bytes
    digest: str  # its SHA-256

    def to_text(self) -> str:
        """Return the receipt as JSON."""
        return json.dumps({**asdict(self), "share": [[p, *s] for p, s in self.share.items()]})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse a receipt.

        Raises:
            ChangelogError: the task has failed; this is its error.
            LogError: the text is not a receipt.
        """
        try:
            raw = json.loads(text)
            if "error" in raw:
                raise _error_of(raw)
            return cls(
                **{
                    **raw,
                    "share": {part: (start, end) for part, start, end in raw["share"]},
                    "later": _place(raw["later"]),
                    "astray": _place(raw["astray"]),
                    "frames": tuple(raw["frames"]),
                    "left_out": tuple((part, offset) for part, offset in raw["left_out"]),
                }
            )
        except (ValueError, TypeError, KeyError) as error:
            raise LogError(f"a task gave no receipt: {text[:80]!r}", hint=_MISTAKE) from error


def _place(raw: Sequence[int] | None) -> tuple[int, int] | None:
    return None if raw is None else (raw[0], raw[1])


def failed(error: ChangelogError) -> str:
    """Return the answer of a task that has failed, as JSON."""
    failure = {"error": type(error).__name__, "said": str(error.args[0]), "hint": error.hint}
    return json.dumps(failure)


def _error_of(raw: Mapping[str, str]) -> ChangelogError:
    """Return the error of a task that has failed."""
    return _KINDS.get(raw["error"], LogError)(raw["said"], hint=raw["hint"])


def parts_of(starts: Sequence[int], ends: Sequence[int], least: int) -> list[TopicPart]:
    """Put the partitions of a topic into parts of about the same number of offsets.

    `least`: the least number of parts, if there are so many partitions.
    """
    spans = [
        (max(0, end - start), part)
        for part, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    filled = sorted((span, part) for span, part in spans if span)
    total = sum(span for span, _ in filled)
    shares: list[Share] = [{} for _ in range(min(len(filled), max(least, total // PART_OFFSETS)))]
    sizes = [0] * len(shares)
    for span, part in reversed(filled):
        smallest = sizes.index(min(sizes))
        shares[smallest][part] = starts[part], ends[part]
        sizes[smallest] += span
    return [TopicPart(number, share) for number, share in enumerate(shares)]


def require_receipts(
    topic: str,
    run: str,
    parts: Sequence[TopicPart],
    receipts: Iterable[Receipt],
    *,
    starts: Sequence[int],
    ends: Sequence[int],
) -> None:
    """Require one receipt for each part, with exactly its offsets, and that they cover the topic.

    Raises LogError: one is lost, came twice, or is of something else.
    """
    by_part: dict[int, Receipt] = {}
    for receipt in receipts:
        if receipt.run != run or not 0 <= receipt.part < len(parts):
            raise _mixed_up(topic, receipt.part, "its receipt is of another verification")
        if receipt.part in by_part:
            raise _mixed_up(topic, receipt.part, "its receipt came twice")
        if receipt.share != parts[receipt.part].share:
            raise _mixed_up(topic, receipt.part, "its receipt tells of other offsets")
        by_part[receipt.part] = receipt
    for part in parts:
        if part.number not in by_part:
            raise _mixed_up(topic, part.number, "its receipt is lost")
    require_whole(topic, starts, ends, (receipt.share for receipt in by_part.values()))


def _mixed_up(topic: str, part: int, why: str) -> LogError:
    return LogError(f'topic "{topic}", task {part} of the verification: {why}', hint=_MISTAKE)
