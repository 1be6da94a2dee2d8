"""What a declared log says, kept in DuckDB and brought forward: no server."""

from __future__ import annotations

import duckdb
import pytest

from changelog.contract.base.errors import VerdictError
from changelog.contract.forms.declared import ValueShape
from tests.support.said import Kept, ToldLog, things


@pytest.fixture
def database():
    with duckdb.connect() as made:
        yield made


@pytest.fixture
def log():
    return ToldLog()


def row(number, name, price="1.50"):
    return {"id": number, "name": name, "price": price}


def test_rows_that_are_not_those_of_the_keys_are_found(database, log):
    kept = Kept(database, things(ValueShape.FLAT_JSON))
    log.put({"id": 1}, row(1, "a"))
    kept.begin(log.records)
    database.execute("DELETE FROM kept")
    names = kept.names()
    with pytest.raises(VerdictError, match="not those of the keys"):
        kept.advance([log.put({"id": 1}, row(1, "b"))])
    assert (kept.rows(), kept.names()) == ([], names)
