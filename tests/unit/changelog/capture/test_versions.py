"""Versions of a table's schema when rows of before an ALTER TABLE come once more."""

from dataclasses import replace

import pytest

from changelog.capture.rows.tables import CapturedTables
from changelog.contract.base.errors import SchemaConflictError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.rows.evolution import SchemaVersion
from changelog.contract.rows.relation import Column
from changelog.contract.rows.types import ColumnType, Kind
from tests.unit.changelog.capture.test_writer import RELATION, TABLE, FakeRegistry

TEXT = ColumnType("text", Kind.STRING)
MORE = replace(RELATION, columns=(*RELATION.columns, Column("more", TEXT)))
STILL_MORE = replace(MORE, columns=(*MORE.columns, Column("still", TEXT)))


class Remembering(FakeRegistry):
    """A registry in memory: the same text is the same version."""

    def __init__(self):
        super().__init__()
        self.versions = []

    def register_value(self, topic, schema, *, fresh=False):
        for version in self.versions:
            if version.text == schema:
                return version.id
        self.versions.append(SchemaVersion.of(schema, len(self.versions) + 1))
        return len(self.versions)

    def values(self, topic):
        return [*self.versions]


@pytest.fixture
def registry():
    return Remembering()


def tables(registry):
    """Return the tables of a new attempt, which has seen no relation."""
    return CapturedTables(registry, {TABLE: "t"}, lambda _, names: dict.fromkeys(names))


def at(lsn):
    return Position(1, Lsn(lsn), 0)


def names(version):
    return [column.column for column in read_value_schema(version.text).columns]


def test_a_row_sent_again_from_before_the_copy_leaves_the_newest_columns_last(registry):
    capture = tables(registry)
    capture.codec(RELATION, at(1))
    capture.copied(STILL_MORE, at(50))
    again = tables(registry)
    again.codec(replace(RELATION), at(1))
    again.codec(MORE, at(20))
    assert names(registry.versions[-1]) == names(registry.versions[1])
    again.codec(STILL_MORE, at(30))
    again.codec(replace(STILL_MORE), at(60))
    assert names(registry.versions[-1]) == ["id", "text", "more", "still"]


def test_the_columns_of_the_copy_in_a_row_of_before_it_are_not_back(registry):
    capture = tables(registry)
    capture.codec(RELATION, at(1))
    capture.copied(MORE, at(50))
    tables(registry).codec(replace(MORE), at(20))
    assert names(registry.versions[-1]) == names(registry.versions[1])


def test_a_column_that_was_dropped_and_is_back_is_refused(registry):
    capture = tables(registry)
    capture.codec(MORE, at(1))
    capture.codec(RELATION, at(10))
    with pytest.raises(SchemaConflictError, match="were dropped and are back"):
        capture.codec(replace(MORE), at(20))


def test_a_row_of_before_all_versions_with_other_columns_is_refused(registry):
    tables(registry).copied(MORE, at(50))
    with pytest.raises(SchemaConflictError, match="has other columns than the copy"):
        tables(registry).codec(RELATION, at(20))
