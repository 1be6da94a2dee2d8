"""Queries for older servers, and what older servers cannot do."""

import pytest

from changelog.contract.base.errors import SourceError
from changelog.source.connect.versions import OLDEST, for_version, need
from changelog.source.tables import catalogue, publication, standing, user_types

QUERIES = {
    catalogue._KEYS: "indnkeyatts",
    catalogue._COLUMNS: "attgenerated",
    catalogue._OLDER: "attmissingval",
    standing._COLUMNS: "attcompression",
    publication._FIND: "pubtruncate",
    user_types._TYPES: "rngmultitypid",
}


@pytest.mark.parametrize(("query", "word"), QUERIES.items(), ids=QUERIES.values())
def test_a_query_names_no_column_that_the_oldest_server_lacks(query, word):
    assert word in query
    assert word not in for_version(query, OLDEST)
    assert for_version(query, 180_000) == query


def test_a_need_names_the_version_that_is_there_and_the_one_that_is_wanted():
    need(140_000, 140_000, "--ddl", "leave it out")
    with pytest.raises(SourceError, match="--ddl needs PostgreSQL 14 or newer, and this is 12"):
        need(120_015, 140_000, "--ddl", "leave it out")
