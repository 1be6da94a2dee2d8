"""Queries of TPC-H over tables with char(n) give what PostgreSQL gives of them."""

import pytest

from tests.support.engines import Engines, Source, own_session
from tests.support.tpch import DDL, QUERIES, fill

pytestmark = [pytest.mark.services, pytest.mark.spark]
OF_POSTGRES = {"year(o_orderdate)": "extract(year FROM o_orderdate)::int"}


def test_each_query_gives_what_postgresql_gives(spark, database):
    source = Source(database, DDL, fill)
    proved = []
    try:
        engines = Engines(own_session(spark), source)
        for name, query in QUERIES.items():
            theirs = query
            for one, other in OF_POSTGRES.items():
                theirs = theirs.replace(one, other)
            wanted = source.answer(theirs)
            assert wanted, f"{name} has no rows, and would show nothing: {wanted}"
            view = engines.view(query, key="k")
            assert ordered(engines.by_spark(view)) == ordered(wanted), name
            if engines.proves(view):
                proved.append(name)
                assert ordered(engines.by_verifier(view)) == ordered(wanted), name
    finally:
        source.close()
    assert len(proved) >= len(QUERIES) - 4


def ordered(rows):
    return sorted(rows, key=repr)
