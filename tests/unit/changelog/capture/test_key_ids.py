"""The id of a topic's key schema tells a registry that is not the log's."""

import time

import pytest

from changelog.capture.loop.schema_watch import SchemaWatch
from changelog.capture.rows.tables import CapturedTables
from changelog.contract.base.errors import LookAgainError, UnavailableLogError
from tests.unit.changelog.capture.test_writer import RELATION, TABLE, FakeRegistry


class Renumbered(FakeRegistry):
    """A registry that has the key's schema under an id."""

    def __init__(self, number):
        super().__init__()
        self.number, self.versions = number, [object()]

    def key_id(self, topic):
        return self.number

    def values(self, topic):
        return self.versions


@pytest.mark.parametrize(
    ("registered", "known", "is_other"),
    [(7, 7, False), (7, None, False), (8, 7, True), (None, 7, True), (None, None, True)],
)
def test_another_registry_is_told_by_the_id_of_the_keys(registered, known, is_other):
    tables = CapturedTables(Renumbered(registered), {TABLE: "t"}, lambda *_: {})
    error = tables.forgotten(RELATION, known)
    assert (error is not None and "is another one" in error.args[0]) is is_other


def test_a_registry_without_the_schema_of_the_values_is_another_one():
    registry = Renumbered(7)
    tables = CapturedTables(registry, {TABLE: "t"}, lambda *_: {})
    registry.versions = []
    error = tables.forgotten(RELATION, 7)
    assert error is not None
    assert "does not know the schema of its values" in error.args[0]


def test_schemas_that_are_lost_while_rows_are_written_end_the_attempt():
    lost = ["a"]
    watch = SchemaWatch(lambda topics: [*{*topics} & {*lost}], lambda: {"a": 7, "b": 8}, look_s=0)

    def looked(*absent):
        for _ in range(50):
            watch.step(absent)
            time.sleep(0.01)

    looked("a")
    with pytest.raises(LookAgainError, match="lost the schemas of 1 topics: a"):
        looked()


def test_a_registry_that_does_not_answer_ends_no_attempt():
    def ask(_):
        raise UnavailableLogError("away")

    watch = SchemaWatch(ask, lambda: {"a": 7}, look_s=0)
    for _ in range(10):
        watch.step(())
        time.sleep(0.01)
