"""Moments of a view's topic: the end of each frontier in it, and a client's place. Pure.

An LSN alone does not say where: after a rollback the same LSN comes again with other rows. So a
client that goes on gives back the whole mark of a frontier: its LSN, the offset behind it, the
topic's own id, since a view that was dropped and built anew has another topic under the same name,
and when it was written. The records that still stand behind it do not tell that: the oldest of them
may have been cleaned away, and a delete with them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.base.lsn import Lsn

START = "start"
_MARK = re.compile(r"([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})-(\d{1,18})-([0-9a-f]{8})-(\d{1,12})")
_AGAIN = f"read the view whole (since={START}), and go on from the last frontier of that"


class GoneError(ViewError):
    """The changes that a client lacks are no longer kept, or cannot be determined."""


class NotBuiltError(GoneError):
    """A view has no topic yet, or none any more."""


class AheadError(ViewError):
    """A client is further than the view."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A frontier of a view's topic."""

    lsn: Lsn  # what the rows are true at
    end: int  # the offset behind them
    generation: int  # that readers see
    written_s: int  # when it was written, seconds since 1970: what is behind it was written later

    def mark(self, life: str) -> str:
        """Return the mark with which a client continues from this moment.

        >>> Moment(Lsn.parse("0/1A"), 7, 2, 1764000000).mark("00c0ffee")
        '0/1A-7-00c0ffee-1764000000'
        """
        return f"{self.lsn}-{self.end}-{life}-{self.written_s}"


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """From where a client lacks changes."""

    offset: int  # of the first of them
    written_s: int  # none of them was written before, seconds since 1970


def place_after(since: str, moments: Sequence[Moment], life: str) -> FeedPlace:
    """Return from where a client lacks changes.

    `since`: the mark of a frontier; an LSN, for who has read the view elsewhere; or `start`.
    `moments`: that are known, oldest first; not all are.

    Raises:
        ConfigurationError: it is none of the three.
        GoneError: what came behind it is not known to be kept.
        AheadError: the view has not come so far.
    """
    if since == START:
        return FeedPlace(0, 0)
    if marked := _MARK.fullmatch(since):
        return _marked(FeedPlace(int(marked[2]), int(marked[4])), marked[3], moments, life)
    try:
        lsn = Lsn.parse(since)
    except ConfigurationError:
        raise ConfigurationError(
            f"{since[:80]!r} is no place to go on from",
            hint=f"the id of a frontier, an LSN, or {START}",
        ) from None
    return _behind(lsn, moments)


def _marked(place: FeedPlace, life: str, moments: Sequence[Moment], own: str) -> FeedPlace:
    if life != own or place.offset > moments[-1].end:
        raise GoneError("the view was built anew since, in another topic", hint=_AGAIN)
    return place


def _behind(lsn: Lsn, moments: Sequence[Moment]) -> FeedPlace:
    """Return the end of the frontier of an LSN, or of the last one before it.

    To begin earlier does no harm: the last change of a key counts.
    """
    for moment in moments:
        if moment.lsn == lsn:
            return FeedPlace(moment.end, moment.written_s)
    for moment, later in pairwise(moments):
        if moment.lsn < lsn < later.lsn:
            return FeedPlace(moment.end, moment.written_s)
    if lsn > max(moment.lsn for moment in moments):
        raise AheadError(
            f"the view has not come to {lsn}: it is at {moments[-1].lsn}",
            hint=f"ask again in a moment; where the source was restored, {_AGAIN}",
        )
    raise GoneError(f"no frontier of {lsn} is kept", hint=_AGAIN)
