"""Views in Iceberg: what the catalogue and others' readers and writers find of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg import catalog
from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from changelog.contract.base.errors import SinkError
from tests.conformance.conftest import Bench, iceberg_bench
from tests.conformance.test_sinks import build, content, expected, numbered, published, watch
from tests.support.iceberg_rest import RestCatalogue
from views.answers.command import side_of
from views.base.iceberg import IcebergPlace
from views.sinks.base import UnavailableSinkError
from views.sinks.iceberg.sink import IcebergSink
from views.sinks.iceberg.table import ViewTables
from views.verify.served.served import read_served
from views.verify.values.types import parse_type

pytestmark = pytest.mark.spark

SECRET = "c4n4ry"


@pytest.fixture
def place(iceberg: Bench, tmp_path: Path) -> IcebergPlace:
    return IcebergPlace("", f"{tmp_path}/_iceberg", f"views.{iceberg.view}")


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with closing(RestCatalogue(tmp_path)) as made:
        made.catalogue.create_namespace("views")
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", made.url)
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__TOKEN", SECRET)
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it was read at the import
        yield made


@pytest.fixture
def by_rest(rest: RestCatalogue, tmp_path: Path, spark, view: str) -> Bench:
    return iceberg_bench(tmp_path, spark, view, "rest")


def test_a_view_goes_through_its_life_in_a_rest_catalogue(by_rest, rest):
    sink = published(by_rest, 1, 2)
    assert content(by_rest.served(by_rest.view)) == expected(by_rest, 2)
    other = by_rest.spark.sql("select 1L id, array(1Y) name, 0.5BD amount")
    build(by_rest, 3, rows=other)
    sink.publish(3)
    assert by_rest.served(by_rest.view) == [{"id": 1, "name": [1], "amount": pytest.approx(0.5)}]
    sink.publish(1)
    assert content(by_rest.served(by_rest.view)) == expected(by_rest, 1)
    for number in (2, 3):
        sink.discard(number)
    assert (sink.published(), sink.generations()) == (1, [1])
    sink.drop()
    assert by_rest.served(by_rest.view) is None
    assert rest.catalogue.list_tables("views") == []


def test_readers_see_one_generation_whole_in_a_rest_catalogue(by_rest):
    sink = published(by_rest, 1, 2)

    def flip() -> None:
        for number in (1, 2) * 5:
            sink.publish(number)

    assert watch(by_rest, flip) == []


def test_twin_a_table_that_is_dropped_and_made_anew_is_a_hole(iceberg, place, monkeypatch):
    published(iceberg, 1, 2)

    def in_two_steps(sink: IcebergSink, generation: int) -> None:
        with place.opened() as opened:
            opened.rename_table(place.table, place.unpublished)
        original(sink, generation)

    original = IcebergSink.publish
    monkeypatch.setattr(IcebergSink, "publish", in_two_steps)
    sink = iceberg.sink()

    def flip() -> None:
        for number in (1, 2) * 5:
            sink.publish(number)

    assert None in watch(iceberg, flip)


@pytest.mark.parametrize(("status", "reason"), [(403, "it takes nothing"), (503, "not answer")])
def test_a_catalogue_that_refuses_changes_nothing(by_rest, rest, status, reason):
    published(by_rest, 1)
    build(by_rest, 2)
    rest.refuses = lambda method, _path: status if method in {"POST", "DELETE"} else 0
    sink = by_rest.sink()
    rows = numbered(by_rest, 3)
    for act in (lambda: sink.publish(2), lambda: sink.discard(2), sink.drop,
                lambda: sink.open(3, rows.schema)):  # fmt: skip
        with pytest.raises(SinkError, match=reason) as raised:
            act()
        assert isinstance(raised.value, UnavailableSinkError) == (status == 503)
        assert SECRET not in f"{raised.value} {raised.value.hint}"
    assert (sink.published(), sink.generations()) == (1, [1, 2])
    assert content(by_rest.served(by_rest.view)) == expected(by_rest, 1)
    rest.refuses = lambda _method, _path: 0
    sink.publish(2)
    assert content(by_rest.served(by_rest.view)) == expected(by_rest, 2)


def test_credentials_are_in_no_plan_and_no_setting(by_rest, monkeypatch):
    plans = []

    def load(rows, writer):
        from views.sinks.iceberg import write

        plans.append(rows._jdf.queryExecution().toString())
        return write.load(rows, writer)

    monkeypatch.setattr("views.sinks.iceberg.sink.load", load)
    published(by_rest, 1)
    assert SECRET not in "".join(plans)
    assert SECRET not in str(by_rest.spark.sparkContext.getConf().getAll())


def test_a_table_of_others_is_refused_and_not_touched(iceberg, place):
    place.make()
    with place.opened() as opened:
        opened.create_namespace("views")
        rows = numbered(iceberg, 1).toArrow()
        opened.create_table(place.table, rows.schema).append(rows)
    sink = iceberg.sink()
    schema = numbered(iceberg, 2).schema
    for act in (sink.published, sink.generations, sink.drop, lambda: sink.open(2, schema)):
        with pytest.raises(SinkError, match="not made for the view"):
            act()
    assert content(iceberg.served(iceberg.view)) == expected(iceberg, 1)


def test_a_generation_without_one_of_its_files_is_not_published(iceberg, place):
    published(iceberg, 1)
    build(iceberg, 2)
    (file, *_) = Path(place.folder).glob(f"views/{iceberg.view}/*/000002/*.parquet")
    file.unlink()
    with pytest.raises(SinkError, match="lacks 1 of its files"):
        iceberg.sink().publish(2)
    assert content(iceberg.served(iceberg.view)) == expected(iceberg, 1)


def test_a_branch_of_others_keeps_the_files_that_it_has(iceberg, place):
    sink = published(iceberg, 1, 2)
    snapshot = int(sink.address(1).location["snapshot"])
    with place.opened() as opened:
        table = opened.load_table(place.table)
        table.manage_snapshots().create_branch(snapshot, "audit").commit()
        with pytest.raises(SinkError, match="audit of iceberg:"):
            sink.discard(1)
        assert table.refresh().scan().use_ref("audit").to_arrow().num_rows == 3
        table.manage_snapshots().remove_branch("audit").commit()
    sink.discard(1)
    assert (sink.generations(), iceberg.stored(iceberg.view, 1)) == ([2], 0)


def test_what_others_wrote_to_the_table_goes_with_the_next_publication(iceberg, place):
    sink = published(iceberg, 1)
    with place.opened() as opened:
        table = opened.load_table(place.table)
        table.append(numbered(iceberg, 1).toArrow())
    assert len(iceberg.served(iceberg.view) or []) == 6
    with pytest.raises(SinkError, match="published"):
        sink.discard(1)
    sink.publish(1)
    assert content(iceberg.served(iceberg.view)) == expected(iceberg, 1)


def test_a_publication_beside_that_of_another_process_is_refused(iceberg, monkeypatch):
    sink = published(iceberg, 1, 2)
    build(iceberg, 3)
    original = ViewTables.commit

    def overtaken(self, change):
        monkeypatch.setattr(ViewTables, "commit", original)
        iceberg.sink().publish(1)
        original(self, change)

    monkeypatch.setattr(ViewTables, "commit", overtaken)
    with pytest.raises(SinkError, match="another process changed"):
        sink.publish(3)
    assert content(iceberg.served(iceberg.view)) == expected(iceberg, 1)


@pytest.mark.parametrize("step", ["rename_table", "drop_table"])
def test_a_drop_that_was_killed_is_gone_on_with(iceberg, monkeypatch, step):
    published(iceberg, 1, 2)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    from pyiceberg.catalog.sql import SqlCatalog

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, step, killed)
        with pytest.raises(KeyboardInterrupt):
            iceberg.sink().drop()
    if step == "drop_table":
        assert iceberg.served(iceberg.view) is None
    iceberg.sink().drop()
    assert (iceberg.sink().generations(), iceberg.served(iceberg.view)) == ([], None)
    published(iceberg, 5)
    assert content(iceberg.served(iceberg.view)) == expected(iceberg, 5)


def test_other_engines_read_the_snapshot_by_the_catalogue_and_by_its_folder(iceberg, place):
    rows = iceberg.spark.sql(
        "select 1 id, 1.50BD amount, timestamp'2024-01-01 00:00:00.000001' at union all "
        "select 2, -1.01BD, null"
    )
    build(iceberg, 1, rows=rows)
    sink = iceberg.sink()
    sink.publish(1)
    with place.opened() as opened, duckdb.connect() as database:
        opened.load_table(place.table).scan().to_duckdb("orders", database)
        found = database.sql('select id, amount::varchar, epoch_us("at") from orders order by id')
        assert found.fetchall() == [(1, "1.50", 1704067200000001), (2, "-1.01", None)]
    settings: Any = None
    with closing(side_of(sink.address(1), ["id"], ["id", "amount"], settings)) as side:
        assert [*side.columns()] == ["id", "amount", "at"]
    kinds = [(name, parse_type(kind)) for name, kind in rows.dtypes]
    with duckdb.connect() as database:
        assert read_served(database, "served", sink.address(1), kinds, ["id"]) == 2


def test_a_catalogue_is_closed_after_each_look(iceberg, monkeypatch):
    opened: list[Catalog] = []
    from pyiceberg.catalog.sql import SqlCatalog

    closed: list[Catalog] = []
    begin, end = SqlCatalog.__init__, SqlCatalog.close

    def made(self, *names, **properties):
        opened.append(self)
        begin(self, *names, **properties)

    def ended(self):
        closed.append(self)
        end(self)

    monkeypatch.setattr(SqlCatalog, "__init__", made)
    monkeypatch.setattr(SqlCatalog, "close", ended)
    published(iceberg, 1)
    assert opened
    assert opened == closed
