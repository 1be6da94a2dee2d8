"""Frontiers that the log is compared at with its source."""

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from views.verify.source.source import first_past


def frontiers(*positions: tuple[int, int]) -> list[Frontier]:
    return [Frontier(slot="s", epoch=epoch, lsn=Lsn(lsn), ts_us=0) for epoch, lsn in positions]


def test_the_first_frontier_past_a_snapshot_is_of_the_newest_epoch() -> None:
    one = frontiers((1, 5), (1, 20), (1, 30))
    assert first_past(one, Lsn(10)) == (one[1], one[2])
    put_back = [*one, *frontiers((2, 4), (2, 12), (2, 14))]
    assert first_past(put_back, Lsn(10)) == (put_back[4], put_back[5])
    assert first_past(put_back, Lsn(15)) == (None, put_back[5]), "30 is of a history that is gone"
    assert first_past([], Lsn(1)) == (None, None)
