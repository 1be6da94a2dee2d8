"""Where a client goes on: exactly there, earlier, or not at all."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from views.changes.moments import START, AheadError, FeedPlace, GoneError, Moment, place_after

LIFE = "00c0ffee"


def moments(*found):
    return [Moment(Lsn(lsn), end, generation, 1000 + end) for lsn, end, generation in found]


FORWARD = moments((16, 5, 1), (32, 9, 1), (64, 20, 1))
BACK = moments((16, 5, 1), (32, 9, 2), (16, 12, 1), (64, 20, 1))


@pytest.mark.parametrize(
    ("since", "known", "offset"),
    [
        (START, FORWARD, 0),
        (f"0/20-9-{LIFE}-1009", FORWARD, 9),
        (f"0/20-7-{LIFE}-1007", FORWARD, 7),
        ("0/20", FORWARD, 9),
        ("0/21", FORWARD, 9),
        ("0/40", FORWARD, 20),
        # After a rollback an LSN comes again: who goes on from the first of them lacks nothing.
        ("0/10", BACK, 5),
        ("0/18", BACK, 5),
        ("0/20", BACK, 9),
    ],
)
def test_a_client_gets_all_that_it_lacks(since, known, offset) -> None:
    assert place_after(since, known, LIFE) == FeedPlace(offset, 1000 + offset if offset else 0)


@pytest.mark.parametrize(
    ("since", "error"),
    [
        ("0/F", GoneError),
        ("0/41", AheadError),
        ("0/20-9-00000000-1009", GoneError),
        (f"0/20-21-{LIFE}-1021", GoneError),
        ("", ConfigurationError),
        ("yesterday", ConfigurationError),
        ("0/20-9", ConfigurationError),
        # Without a time nobody knows what was cleaned away since.
        (f"0/20-9-{LIFE}", ConfigurationError),
        ("-1", ConfigurationError),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused(since, error) -> None:
    with pytest.raises(error):
        place_after(since, FORWARD, LIFE)


def test_a_mark_leads_back_to_its_frontier() -> None:
    for each in BACK:
        assert place_after(each.mark(LIFE), BACK, LIFE) == FeedPlace(each.end, each.written_s)
