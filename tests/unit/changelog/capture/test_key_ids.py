"""The id of a topic's key schema tells a registry that is not the log's."""

import pytest

from changelog.capture.rows.tables import CapturedTables
from tests.unit.changelog.capture.test_writer import RELATION, TABLE, FakeRegistry


class Renumbered(FakeRegistry):
    """A registry that has the key's schema under an id."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def key_id(self, topic):
        return self.number


@pytest.mark.parametrize(
    ("registered", "known", "is_other"),
    [(7, 7, False), (7, None, False), (8, 7, True), (None, 7, True), (None, None, True)],
)
def test_another_registry_is_told_by_the_id_of_the_keys(registered, known, is_other):
    tables = CapturedTables(Renumbered(registered), {TABLE: "t"}, lambda *_: {})
    error = tables.forgotten(RELATION, known)
    assert (error is not None and "is another one" in error.args[0]) is is_other
