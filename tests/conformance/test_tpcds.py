"""Queries as TPC-DS has them, as views in PostgreSQL's SQL, give what PostgreSQL gives of them."""

import pytest

from tests.support.engines import Engines, Source, own_session
from tests.support.tpcds import DDL, QUERIES, fill

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.mark.matrix
def test_each_query_gives_what_postgresql_gives(spark, database):
    source = Source(database, DDL, fill)
    different, unproved = {}, {}
    try:
        engines = Engines(own_session(spark), source)
        for name, (key, query) in QUERIES.items():
            wanted = ordered(source.answer(query))
            assert wanted, f"{name} has no rows, and would show nothing"
            view = engines.view(query, key=key, dialect="postgres")
            if (ours := ordered(engines.by_spark(view))) != wanted:
                different[name] = (ours[:2], wanted[:2])
            if not engines.proves(view):
                unproved[name] = view.sql
            elif (ours := ordered(engines.by_verifier(view))) != wanted:
                different[f"{name}, verifier"] = (ours[:2], wanted[:2])
    finally:
        source.close()
    assert (different, unproved) == ({}, {})


def ordered(rows):
    return sorted(rows, key=repr)
