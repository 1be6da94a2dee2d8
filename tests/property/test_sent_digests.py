"""Law: of any rounds, the rows that are left out are the ones that were sent last of their keys."""

from hypothesis import given
from hypothesis import strategies as st

from views.rebuild.local.sent import SentDigests

ROWS = st.dictionaries(st.integers(0, 30).map(str), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(["v", "w"]), ROWS), max_size=12))
def test_what_is_left_out_was_sent_last(rounds):
    digests = SentDigests()
    model: dict[str, dict[str, int]] = {"v": {}, "w": {}}
    for view, rows in rounds:
        came = {key: f"{key}={row}".encode().ljust(16) for key, row in rows.items()}
        unsent = {key for key, row in rows.items() if model[view].get(key) != row}
        assert digests.unsent(view, came) == unsent
        model[view] |= rows
