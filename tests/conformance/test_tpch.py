"""Queries of TPC-H over tables with char(n) give what PostgreSQL gives of them."""

from contextlib import closing

import psycopg2
import pytest
from deltalake import DeltaTable

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.engines import Engines, Source, own_session, plain
from tests.support.tpch import DDL, OPEN_ORDERS, QUERIES, fill, official

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


@pytest.mark.matrix
def test_each_official_query_is_a_view_in_postgresqls_sql(spark, database):
    source = Source(database, DDL, fill)
    different, unproved = {}, {}
    try:
        engines = Engines(own_session(spark), source)
        for name, (key, query) in official().items():
            wanted = source.answer(query)
            assert wanted, f"{name} has no rows, and would show nothing: {wanted}"
            assert any(value is not None for row in wanted for value in row), name
            view = engines.view(query, key=key, dialect="postgres")
            if ordered(engines.by_spark(view)) != ordered(wanted):
                different[name] = (engines.by_spark(view)[:2], wanted[:2])
            if not engines.proves(view):
                unproved[name] = view.sql
            elif ordered(engines.by_verifier(view)) != ordered(wanted):
                different[f"{name}, verifier"] = (engines.by_verifier(view)[:2], wanted[:2])
    finally:
        source.close()
    assert len(official()) == 22
    assert (different, unproved) == ({}, {})


@pytest.mark.matrix
def test_the_official_queries_are_built_and_proved_from_a_captured_database(
    stack, spark, tmp_path, capsys, monkeypatch
):
    with captured_database(stack, tmp_path, DDL, captures=False) as (project, _):
        with closing(psycopg2.connect(project.dsn)) as connection:
            fill(connection.cursor())
            connection.commit()
        project.capture()
        queries = official()
        for name, column in OPEN_ORDERS.items():
            key, query = queries[name]
            queries[name] = (key, query.replace("\nlimit", f",\n    {column}\nlimit"))
        for name, (key, query) in queries.items():
            header = f"-- key: {key}\n-- sinks: delta\n-- dialect: postgres\n"
            project.view(f"{name}.sql", f"{header}{query}\n")
        built = rebuild_view(capsys, monkeypatch, project, "--all")
        assert built.code == 0, built.err
        for name, (_, query) in queries.items():
            served = DeltaTable(str(project.warehouse / name)).to_pyarrow_table().to_pylist()
            ours = [tuple(map(plain, row.values())) for row in served]
            theirs = [tuple(map(plain, row)) for row in project.query(query)]
            assert ordered(ours) == ordered(theirs), name


def ordered(rows):
    return sorted(rows, key=repr)
