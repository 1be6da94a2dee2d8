"""Tables of Iceberg without a server and without Spark: schemas, places, commits, files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from changelog.contract.base.errors import ConfigurationError, SinkError
from views.base.address import Address
from views.base.iceberg import IcebergPlace
from views.sinks.base import ForeignTableError, SinkSettings, UnavailableSinkError
from views.sinks.iceberg import table as table_module
from views.sinks.iceberg.column_types import matching_schema, new_schema, next_schema
from views.sinks.iceberg.table import (
    ViewTables,
    discarding,
    forgetting,
    opening,
    publishing,
    rows_in,
    sealing,
    update,
)
from views.sinks.iceberg.write import FileAccess, FileWriter
from views.sinks.make import make_sink
from views.verify.served.iceberg import iceberg_tables
from views.verify.values.types import parse_type

SECRET = "c4n4ry"
FIRST = pa.schema([("id", pa.int32()), ("name", pa.string())])
SECOND = pa.schema([("id", pa.int32()), ("name", pa.int64()), ("tags", pa.list_(pa.string()))])


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace("", str(tmp_path), "views.orders")


@pytest.fixture
def tables(place: IcebergPlace) -> ViewTables:
    return ViewTables(place, "orders", 1)


def write(tables: ViewTables, generation: int, rows: pa.Table) -> None:
    """Write a generation up to its seal, as a sink does."""
    columns = from_arrow_schema(rows.schema)
    if tables.load() is None:
        tables.create(new_schema(columns))

    def begun(loaded: Any) -> Any:
        if matching_schema(columns, loaded.metadata) is not None:
            return [opening(generation)], []
        added = update("add-schema", schema=next_schema(columns, loaded.metadata))
        return [added, opening(generation)], []

    tables.commit(begun)
    loaded = tables.load()
    assert loaded is not None
    schema = matching_schema(columns, loaded.metadata)
    assert schema is not None
    writer = FileWriter(loaded.access, loaded.folder(generation), schema.model_dump_json())
    file = writer.write(iter(rows.to_batches()))
    files = [file] if file else []
    tables.commit(lambda now: sealing(now, generation, schema, files))


def publish(tables: ViewTables, generation: int) -> None:
    loaded = tables.load()
    assert loaded is not None
    snapshot = loaded.sealed(generation)
    assert snapshot is not None
    tables.commit(lambda now: publishing(now, generation, snapshot))
    if not loaded.is_served:
        tables.expose()


def shown(place: IcebergPlace) -> pa.Table:
    with place.opened() as catalogue:
        return catalogue.load_table(place.table).scan().to_arrow()


def numbered(*numbers: int) -> pa.Table:
    names = [f"row {n}" for n in numbers]
    return pa.table({"id": pa.array(numbers, pa.int32()), "name": names}, schema=FIRST)


def test_readers_find_no_table_before_the_first_one_is_published(tables, place):
    write(tables, 1, numbered(1, 2))
    with place.opened() as catalogue:
        assert not catalogue.table_exists(place.table)
    loaded = tables.load()
    assert (loaded.published, loaded.generations, rows_in(loaded.sealed(1))) == (None, [1], 2)
    publish(tables, 1)
    assert shown(place)["id"].to_pylist() == [1, 2]
    assert tables.load().published == 1


def test_a_look_makes_nothing(tmp_path):
    tables = ViewTables(IcebergPlace("", f"{tmp_path}/a", "views.orders"), "orders", 1)
    assert tables.load() is None
    tables.drop()
    assert not list(tmp_path.iterdir())
    odd = ViewTables(IcebergPlace("", f"{tmp_path}/a?b", "views.orders"), "orders", 1)
    with pytest.raises(ConfigurationError, match="question mark"):
        write(odd, 1, numbered(1))
    assert not list(tmp_path.iterdir())


def test_a_publication_that_was_killed_before_the_name_is_gone_on_with(tables, place):
    write(tables, 1, numbered(1))
    snapshot = tables.load().sealed(1)
    tables.commit(lambda now: publishing(now, 1, snapshot))
    assert tables.load().published is None
    publish(tables, 1)
    assert (tables.load().published, shown(place)["id"].to_pylist()) == (1, [1])


def test_columns_of_another_type_are_other_columns(tables, place):
    write(tables, 1, numbered(1))
    publish(tables, 1)
    other = pa.table({"id": [2], "name": [7], "tags": [["a", None]]}, schema=SECOND)
    write(tables, 2, other)
    assert shown(place).to_pylist() == numbered(1).to_pylist()
    publish(tables, 2)
    assert shown(place).to_pylist() == other.to_pylist()
    publish(tables, 1)  # a rollback brings the older schema back
    assert shown(place).to_pylist() == numbered(1).to_pylist()
    write(tables, 3, numbered(3))
    first, second = tables.load().metadata.schemas  # the third has the schema of the first
    assert first.find_field("id").field_id == second.find_field("id").field_id
    assert first.find_field("name").field_id != second.find_field("name").field_id


def test_a_generation_is_removed_with_its_files_and_no_others(tables, place):
    for generation in (1, 2):
        write(tables, generation, numbered(generation))
    publish(tables, 2)
    loaded = tables.load()
    folder = Path(loaded.folder(1))
    assert list(folder.glob("*.parquet"))
    tables.commit(lambda now: discarding(now, 1))
    assert tables.load().generations == [1, 2]  # killed here, it is an unfinished one
    assert tables.load().sealed(1) is None
    tables.remove(loaded, 1)
    tables.commit(lambda now: forgetting(now, 1))
    assert (tables.load().generations, folder.exists()) == ([2], False)
    assert shown(place)["id"].to_pylist() == [2]


def test_a_file_of_a_task_that_ran_twice_is_no_part_and_goes_with_the_rest(tables, place):
    write(tables, 1, numbered(1))
    loaded = tables.load()
    schema = matching_schema(from_arrow_schema(FIRST), loaded.metadata)
    assert schema is not None
    again = FileWriter(loaded.access, loaded.folder(1), schema.model_dump_json())
    again.write(iter(numbered(1).to_batches()))
    assert len(list(Path(loaded.folder(1)).glob("*.parquet"))) == 2
    publish(tables, 1)
    assert shown(place)["id"].to_pylist() == [1]
    write(tables, 2, numbered(2))
    publish(tables, 2)
    tables.commit(lambda now: discarding(now, 1))
    tables.remove(loaded, 1)
    assert not Path(loaded.folder(1)).exists()


def test_a_table_that_others_made_is_refused_and_not_touched(tables, place):
    place.make()
    with place.opened() as catalogue:
        catalogue.create_namespace("views")
        catalogue.create_table(place.table, FIRST).append(numbered(1))
    for act in (tables.load, tables.drop):
        with pytest.raises(ForeignTableError, match="not made for the view"):
            act()
    assert shown(place)["id"].to_pylist() == [1]


def test_branches_of_others_hold_the_files_of_a_generation(tables, place):
    for generation in (1, 2):
        write(tables, generation, numbered(generation))
        publish(tables, generation)
    number = tables.load().sealed(1).snapshot_id
    with place.opened() as catalogue:
        catalogue.load_table(place.table).manage_snapshots().create_branch(number, "audit").commit()
    assert tables.load().other_readers(1) == ["audit"]
    assert tables.load().other_readers(2) == ["main"]


def test_a_commit_is_computed_anew_where_others_have_committed(tables, place):
    write(tables, 1, numbered(1))
    publish(tables, 1)
    tries = []

    def change(loaded):
        tries.append(loaded.main)
        if len(tries) == 1:
            # The branch moves between the look and the commit.
            with place.opened() as catalogue:
                catalogue.load_table(place.table).append(numbered(9))
        return publishing(loaded, 1, loaded.sealed(1))

    tables.commit(change)
    assert len(set(tries)) == 2
    assert shown(place)["id"].to_pylist() == [1]


def test_twin_without_the_condition_a_commit_covers_that_of_others(tables, place, monkeypatch):
    monkeypatch.setattr(table_module, "_main_at", lambda _: update_of_nothing(tables))
    write(tables, 1, numbered(1))
    publish(tables, 1)
    tries = []

    def change(loaded):
        tries.append(loaded.main)
        with place.opened() as catalogue:
            catalogue.load_table(place.table).append(numbered(9))
        return publishing(loaded, 1, loaded.sealed(1))

    tables.commit(change)
    assert len(tries) == 1


def update_of_nothing(tables):
    return table_module.requirement("table-uuid", uuid=tables.load().metadata.table_uuid)


def test_missing_files_are_named(tables):
    write(tables, 1, numbered(1))
    loaded = tables.load()
    assert not loaded.missing(1, loaded.sealed(1))
    (file,) = Path(loaded.folder(1)).glob("*.parquet")
    file.unlink()
    assert loaded.missing(1, loaded.sealed(1)) == {str(file)}


def test_a_dropped_table_leaves_nothing(tables, place, tmp_path):
    for generation in (1, 2):
        write(tables, generation, numbered(generation))
    publish(tables, 1)
    tables.drop()
    assert tables.load() is None
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["catalogue.db"]
    tables.drop()
    write(tables, 1, numbered(5))
    publish(tables, 1)
    assert shown(place)["id"].to_pylist() == [5]


KINDS = {
    "tiny": "tinyint",
    "small": "smallint",
    "flag": "boolean",
    "amount": "decimal(38,18)",
    "raw": "binary",
    "single": "float",
    "double": "double",
    "day": "date",
    "moment": "timestamp",
    "clock": "timestamp_ntz",
    "list": "array<smallint>",
    "map": "map<date,array<tinyint>>",
    "struct": "struct<a b:tinyint,m:timestamp>",
}
ENDS = {
    "tiny": pa.array([-(2**7), 2**7 - 1, None], pa.int8()),
    "small": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "flag": pa.array([True, False, None]),
    "amount": pa.array([f"-{'9' * 20}.{'9' * 18}", f"0.{'0' * 17}1", None], pa.string()).cast(
        pa.decimal128(38, 18)
    ),
    "raw": pa.array([b"", b"\x00\xff", None]),
    "single": pa.array([-0.0, float("nan"), None], pa.float32()),
    "double": pa.array([5e-324, float("-inf"), None]),
    "day": pa.array([-(2**31) + 1, 2**31 - 1, None], pa.int32()).cast(pa.date32()),
    "moment": pa.array([-(2**63) + 1, 2**63 - 1, None], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "clock": pa.array([-(2**63) + 1, 2**63 - 1, None], pa.int64()).cast(pa.timestamp("us")),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int16())),
    "map": pa.array(
        [[(1, [-1, None]), (2, None)], [], None], pa.map_(pa.date32(), pa.list_(pa.int8()))
    ),
    "struct": pa.array(
        [{"a b": 1, "m": 1}, {"a b": None, "m": None}, None],
        pa.struct([("a b", pa.int8()), ("m", pa.timestamp("us", "UTC"))]),
    ),
}


def test_each_type_is_read_back_for_the_proof_as_it_was_written(tables, place):
    write(tables, 1, pa.table(ENDS))
    number = tables.load().sealed(1).snapshot_id
    address = Address("iceberg", {**place.to_location(), "snapshot": str(number)})
    (read,) = iceberg_tables(address, [(name, parse_type(kind)) for name, kind in KINDS.items()])
    for name, column in ENDS.items():
        found = read[name].combine_chunks()
        assert repr(_numbers(found)) == repr(_numbers(column)), name


NAMES = ("id", "größe", "sp ace", "x;y", "sum(x)", "_id", "x" * 64, 'quo"te', "a/b", "1", "=")


def test_columns_of_any_name_are_read_by_all(tables, place):
    rows = pa.table({name: pa.array([n], pa.int32()) for n, name in enumerate(NAMES)})
    write(tables, 1, rows)
    publish(tables, 1)
    number = tables.load().sealed(1).snapshot_id
    address = Address("iceberg", {**place.to_location(), "snapshot": str(number)})
    (read,) = iceberg_tables(address, [(name, parse_type("int")) for name in NAMES])
    assert read.to_pylist() == shown(place).to_pylist() == rows.to_pylist()


DOTTED = StructType([StructField("a.b", IntegerType())])


@pytest.mark.parametrize("kind", [DOTTED, MapType(StringType(), ArrayType(DOTTED))])
def test_a_point_in_a_name_is_refused_at_any_depth(tmp_path, kind):
    made: Any = {"view": "v", "key": ["id"], "spark": None}
    sink = make_sink("iceberg", settings=SinkSettings(warehouse=str(tmp_path)), **made)
    schema = StructType([StructField("id", IntegerType()), StructField("c", kind)])
    with pytest.raises(SinkError, match=r'column "a\.b" has a point'):
        sink.check(schema)


def _numbers(column: pa.Array) -> Any:
    """Return values as numbers where Python has none for them."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_struct(column.type):
        return [None if row is None else next(iter(row.values())) for row in column.to_pylist()]
    return column.to_pylist()


def test_another_snapshot_or_other_columns_are_said(tables, place):
    write(tables, 1, numbered(1))
    kinds = [("id", parse_type("int")), ("name", parse_type("string"))]
    number = str(tables.load().sealed(1).snapshot_id)
    with pytest.raises(SinkError, match="no snapshot 7"):
        list(iceberg_tables(Address("iceberg", {**place.to_location(), "snapshot": "7"}), kinds))
    address = Address("iceberg", {**place.to_location(), "snapshot": number})
    with pytest.raises(SinkError, match="has the columns id, name"):
        list(iceberg_tables(address, kinds[:1]))
    with pytest.raises(SinkError, match=r'column "id": it has type int32, not bigint'):
        list(iceberg_tables(address, [("id", parse_type("bigint")), kinds[1]]))


def test_a_catalogue_is_found_by_its_name_and_its_secrets_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__S3__SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it was read at the import
    place = IcebergPlace("shop", "", "lake.orders")
    tables = ViewTables(place, "orders", 1)
    assert tables.load() is None
    with pytest.raises(SinkError, match="lake") as raised:
        write(tables, 1, numbered(1))
    assert "create the namespace" in str(raised.value.hint)
    assert not list(tmp_path.rglob("*.json"))
    with place.opened() as catalogue:
        catalogue.create_namespace("lake")
    write(tables, 1, numbered(1))
    publish(tables, 1)
    assert shown(place)["id"].to_pylist() == [1]
    loaded = tables.load()
    assert loaded is not None
    access = loaded.access
    assert access.properties["s3.secret-access-key"] == SECRET
    address = Address("iceberg", place.to_location())
    assert SECRET not in f"{access!r} {address!r} {address} {place} {loaded.root}"
    assert pickle.loads(pickle.dumps(access)) == access  # noqa: S301 - our own
    tables.drop()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["shop.db"]


def test_what_cannot_be_opened_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(ConfigurationError, match="catalogue nowhere") as raised:
        ViewTables(IcebergPlace("nowhere", "", "a.b"), "b", 1).load()
    assert "PYICEBERG_CATALOG__" in str(raised.value.hint)
    monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__URI", f"http://ann:{SECRET}@127.0.0.1:9/")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    with pytest.raises(UnavailableSinkError, match="does not answer") as away:
        ViewTables(IcebergPlace("away", "", "a.b"), "b", 1).load()
    assert SECRET not in str(away.value)
    made: Any = {"view": "v", "key": ["id"], "spark": None}
    with pytest.raises(ConfigurationError, match="cannot be in the warehouse"):
        make_sink("iceberg", settings=SinkSettings(warehouse="s3://bucket/lake"), **made)
    settings = SinkSettings(warehouse=str(tmp_path))
    with pytest.raises(SinkError, match="does not name a table"):
        make_sink("iceberg", settings=settings, options={"table": "orders"}, **made)
    with pytest.raises(ConfigurationError, match="no such option"):
        make_sink("iceberg", settings=settings, options={"mode": "upsert"}, **made)


def test_a_catalogue_that_is_locked_is_away(tables, monkeypatch):
    class OperationalError(Exception):
        """As SQLAlchemy's."""

    def locked(*_: object) -> None:
        raise OperationalError("database is locked")

    write(tables, 1, numbered(1))
    monkeypatch.setattr(SqlCatalog, "load_table", locked)
    with pytest.raises(UnavailableSinkError, match="database is locked"):
        tables.load()


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    access = FileAccess(str(tmp_path), {})
    (tmp_path / "taken").write_text("")
    schema = new_schema(from_arrow_schema(FIRST)).model_dump_json()
    with pytest.raises(SinkError, match="cannot be written"):
        FileWriter(access, f"{tmp_path}/taken", schema).write(iter(numbered(1).to_batches()))
