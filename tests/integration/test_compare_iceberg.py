"""`changelog verify --target iceberg:`: deletes, partitions, schemas, snapshots, catalogues."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType

from changelog.compare import iceberg_file, iceberg_side
from changelog.compare.address import parse_target
from changelog.compare.command import open_target
from changelog.compare.compare import CompareRequest, compare
from changelog.compare.iceberg_side import IcebergSide
from changelog.compare.postgres import ComparedRelation, PostgresSide
from changelog.compare.watch import KeyWatch
from changelog.contract.base.errors import ConfigurationError, SinkError
from changelog.runtime.installed.extras import MissingExtraError
from tests.support.copies import iceberg_catalogue
from tests.support.iceberg_deletes import add_deletes, delete_positions


@pytest.fixture
def source(dsn, execute):
    execute("CREATE TABLE own (id int PRIMARY KEY, t text)")
    execute("INSERT INTO own SELECT n, 'row ' || n FROM generate_series(1, 50) AS n")
    return dsn


@pytest.fixture
def catalogue(tmp_path):
    with iceberg_catalogue(tmp_path) as opened:
        yield opened


def rows(ids):
    texts = pa.array([f"row {n}" for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int32()), "t": texts})


def made(catalogue, *parts, **options):
    """Make a table whose files have the rows with some ids."""
    table = catalogue.create_table("shop.own", rows([]).schema, **options)
    for ids in parts:
        table.append(rows(ids))
    return table


def opened(table):
    return open_target(parse_target(f"iceberg:{table.location()}"), "own", Path())


def compared(dsn, table):
    with (
        closing(PostgresSide(dsn, ComparedRelation(table="own"), of="source")) as source,
        closing(opened(table)) as copy,
    ):
        return compare(source, copy, CompareRequest(settle_s=0.0))


def differences(dsn, table):
    report = compared(dsn, table)
    assert report.compared == ("id", "t")
    return {int(each.key["id"]): each.kind for each in report.differences}


def files_of(table):
    return [task.file.file_path for task in table.scan().plan_files()]


def test_rows_that_are_deleted_by_position_are_not_there(source, catalogue, monkeypatch):
    table = made(catalogue, range(10), range(10, 60))
    ten, fifty = sorted(files_of(table), key=lambda path: next_id(table, path))
    delete_positions(table, [(ten, 0), *((fifty, place) for place in range(41, 50))])
    assert differences(source, table) == {}
    delete_positions(table, [(ten, 7)])
    assert differences(source, table) == {7: "missing"}
    # The twin: as if nobody read the delete files.
    monkeypatch.setattr("pyiceberg.io.pyarrow._read_deletes", lambda io, file: {})
    assert differences(source, table).keys() == {0, *range(51, 60)}


def next_id(table, path):
    """Return the least id of a file."""
    return min(pq.read_table(path.removeprefix("file://"), partitioning=None)["id"].to_pylist())


def test_deletes_count_for_the_rows_before_them_alone(source, catalogue):
    table = made(catalogue, range(51))
    (file,) = files_of(table)
    delete_positions(table, [(file, 0), (file, 3)])
    assert differences(source, table) == {3: "missing"}
    table.append(rows([3]))
    assert differences(source, table) == {}


def test_rows_that_pyiceberg_deletes_are_not_there(source, catalogue):
    table = made(catalogue, range(1, 60), properties={"write.delete.mode": "merge-on-read"})
    with pytest.warns(UserWarning, match="falling back to copy-on-write"):
        table.delete("id > 50 or id = 9")
    assert differences(source, table) == {9: "missing"}


def test_a_table_has_partitions_old_and_new(source, catalogue):
    table = made(catalogue)
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "part")
    table.append(rows(range(1, 4)))
    with table.update_spec() as update:
        update.remove_field("part")
    table.append(rows(range(4, 50)))
    assert len(files_of(table)) == 3 + 1
    assert differences(source, table) == {50: "missing"}


def test_columns_are_found_by_their_ids(source, execute, catalogue):
    execute("ALTER TABLE own ADD n int")
    execute("UPDATE own SET n = id WHERE id > 30")
    old = pa.schema([("id", pa.int32()), ("words", pa.string()), ("gone", pa.int32())])
    table = catalogue.create_table("shop.own", old)
    first = rows(range(1, 31)).rename_columns(["id", "words"])
    table.append(first.append_column("gone", pa.array([7] * 30, pa.int32())))
    with table.update_schema() as update:
        update.rename_column("words", "t")
        update.delete_column("gone")
    with table.update_schema() as update:
        update.add_column("n", IntegerType())
    later = rows(range(31, 51))
    table.append(later.append_column("n", later["id"]))
    report = compared(source, table)
    assert (report.verified, report.compared) == (True, ("id", "t", "n")), report.lines()


def test_types_are_compared_by_value(dsn, execute, catalogue):
    execute(
        "CREATE TABLE own (id int PRIMARY KEY, d numeric(38,10), f bytea, s jsonb, m jsonb,"
        " l numeric(9,2)[])"
    )
    execute(
        "INSERT INTO own VALUES (1, 1234567890123456789012345678.0123456789, '\\x00ff10',"
        ' \'{"a": 1, "b": [null, "x"]}\', \'{"k": 1.5}\', \'{1.50,NULL}\'),'
        " (2, -0.0000000001, NULL, NULL, '{}', '{}')"
    )
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "d": pa.array(
                [
                    Decimal("1234567890123456789012345678.0123456789"),
                    Decimal("-0.0000000001"),
                ],
                pa.decimal128(38, 10),
            ),
            "f": pa.array([b"\x00\xff\x10", None], pa.binary(3)),
            "s": pa.array(
                [{"a": 1, "b": [None, "x"]}, None],
                pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
            ),
            "m": pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float64())),
            "l": pa.array([[Decimal("1.50"), None], []], pa.list_(pa.decimal128(9, 2))),
        }
    )
    made_of = catalogue.create_table("shop.own", table.schema)
    made_of.append(table)
    report = compared(dsn, made_of)
    assert report.verified is True, report.lines()
    assert report.compared == ("id", "d", "f", "s", "m", "l")
    wrong = table.set_column(2, "f", pa.array([b"\x00\xff\x11", None], pa.binary(3)))
    made_of.overwrite(wrong)
    assert [each.key for each in compared(dsn, made_of).differences] == [{"id": "1"}]


def test_the_report_says_which_snapshots_were_read(source, catalogue, monkeypatch):
    table = made(catalogue, [1, 2], range(4, 51))
    before = table.current_snapshot().snapshot_id
    assert any(f"snapshot {before} of" in note for note in compared(source, table).notes)
    look = KeyWatch._look

    def mended(watch, watched):
        table.append(rows([3]))
        monkeypatch.setattr(KeyWatch, "_look", look)
        return look(watch, watched)

    monkeypatch.setattr(KeyWatch, "_look", mended)
    report = compared(source, table)
    assert report.verified is True, report.lines()
    after = table.current_snapshot().snapshot_id
    assert any(f"snapshot {before}, then {after} of" in note for note in report.notes)


def test_the_identity_is_that_of_table_and_snapshot(catalogue):
    table = made(catalogue, [1])
    with closing(opened(table)) as copy:
        assert copy.identity() == {
            "table_uuid": str(table.metadata.table_uuid),
            "snapshot": str(table.current_snapshot().snapshot_id),
            "metadata": table.metadata_location.removeprefix("file://"),
        }


def test_a_table_without_a_snapshot_is_empty(source, catalogue):
    report = compared(source, made(catalogue))
    assert (report.verified, report.target_rows, report.mismatches) == (False, 0, 50)


@pytest.mark.parametrize(
    ("content", "form", "part"),
    [
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "has equality deletes"),
        (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, "has deletion vectors"),
    ],
)
def test_deletes_that_are_not_read_are_refused(
    source, catalogue, run_command, tmp_path, content, form, part
):
    table = made(catalogue, range(1, 51))
    file = tmp_path / "deletes"
    file.write_bytes(b"never read")
    add_deletes(table, content, form, file, 1)
    words = ["verify", "own", "--source", source, "--target", f"iceberg:{table.location()}"]
    code, _, told = run_command(words)
    assert (code, part in told, "rewrite_data_files" in told) == (2, True, True), told


def test_a_data_file_that_is_missing_is_an_error(source, catalogue, run_command):
    table = made(catalogue, range(1, 51))
    (file,) = files_of(table)
    Path(file.removeprefix("file://")).unlink()
    words = ["verify", "own", "--source", source, "--target", f"iceberg:{table.location()}"]
    code, _, told = run_command(words)
    assert (code, "No such file" in told, Path(file).name in told) == (1, True, True), told
    assert "Traceback" not in told


def test_a_file_with_other_rows_than_it_was_written_with_is_an_error(source, catalogue):
    table = made(catalogue, range(1, 51))
    (file,) = files_of(table)
    path = file.removeprefix("file://")
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    with pytest.raises(SinkError, match="has 49 rows, and the table says 50"):
        compared(source, table)


def test_few_rows_are_in_memory_at_a_time(catalogue, monkeypatch):
    monkeypatch.setattr(iceberg_file, "_BATCH_BYTES", 100)
    table = made(catalogue, range(1000), range(1000, 2000))
    delete_positions(
        table, [(file, place) for file in files_of(table) for place in range(0, 1000, 7)]
    )
    seen = [
        batch["id"].to_pylist()
        for task in table.scan().plan_files()
        for batch in iceberg_file.read_file(
            table,
            table.schema(),
            task,
            [_read_deletes(table.io, file)[task.file.file_path] for file in task.delete_files],
        )
    ]
    assert max(map(len, seen)) < 30
    assert sorted(n for ids in seen for n in ids) == [n for n in range(2000) if n % 1000 % 7]


def test_a_table_that_is_dropped_or_replaced_meanwhile_is_an_error(catalogue, configured):
    table = made(catalogue, [1])
    with closing(IcebergSide("here/shop.own")) as copy:
        assert [*copy.columns()] == ["id", "t"]
        catalogue.drop_table("shop.own")
        with pytest.raises(SinkError, match="is gone"):
            copy.columns()
        catalogue.create_table("shop.own", table.schema())
        with pytest.raises(SinkError, match="another table now"):
            copy.columns()


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Configures the catalogue `here` for this process."""
    from pyiceberg import catalog

    place = {"uri": f"sqlite:///{tmp_path}/catalogue.db", "warehouse": str(tmp_path)}
    monkeypatch.setattr(catalog._ENV_CONFIG, "config", {"catalog": {"here": place}})


def test_a_catalogue_comes_from_the_environment(source, catalogue, tmp_path):
    made(catalogue, range(1, 51))
    words = ["verify", "own", "--source", source, "--settle", "0", "--target"]
    run = [sys.executable, "-m", "changelog", *words, "iceberg:here/shop.own"]
    place = {
        "PYICEBERG_CATALOG__HERE__URI": f"sqlite:///{tmp_path}/catalogue.db",
        "PYICEBERG_CATALOG__HERE__S3__SECRET_ACCESS_KEY": "hush",
    }
    ended = subprocess.run(
        run, env={**os.environ, **place}, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "equal: iceberg:here/shop.own" in ended.stdout
    assert "hush" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("here/shop.none", "there is no Iceberg table at here/shop.none"),
        ("here/none.own", "there is no Iceberg table at here/none.own"),
        ("nowhere/shop.own", "the catalogue nowhere of Iceberg cannot be opened"),
        ("shop.own", "names no table of a catalogue and no path"),
        ("data/own", "names no table of a catalogue and no path"),
        ("a/b/c.d", "names no table of a catalogue and no path"),
        ("here/.own", "names no table of a catalogue and no path"),
        ("./none", "there is no Iceberg table at ./none"),
        ("/none/x.metadata.json", "there is no Iceberg table at /none/x.metadata.json"),
    ],
)
def test_an_address_without_a_table_is_told(catalogue, configured, place, part):
    with pytest.raises(ConfigurationError) as raised:
        IcebergSide(place)
    assert part in str(raised.value)
    assert "~/.pyiceberg.yaml" in str(raised.value)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'changelog-store\[iceberg\]'"):
        IcebergSide("here/shop.own")


class TestNewestMetadata:
    """A table by its folder, as those without a catalogue are kept."""

    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "table"
        (folder / "metadata").mkdir(parents=True)
        return folder

    @pytest.fixture
    def add(self, folder):
        return lambda *names: [(folder / "metadata" / name).write_text("{}") for name in names]

    def newest(self, folder):
        return Path(iceberg_side._newest(str(folder))).name

    def test_the_highest_number_counts(self, folder, add):
        add("00002-b.metadata.json", "00010-a.metadata.json", "00011-x.avro", "snap-99-1.avro")
        assert self.newest(folder) == "00010-a.metadata.json"
        add("v12.gz.metadata.json")
        assert self.newest(folder) == "v12.gz.metadata.json"

    def test_two_of_one_number_are_refused(self, folder, add):
        add("00002-b.metadata.json", "00002-a.metadata.json")
        with pytest.raises(ConfigurationError, match=r"2 files of metadata in .* the number 2"):
            self.newest(folder)

    def test_the_hint_counts_and_what_was_written_after_it(self, folder, add):
        add("v1.metadata.json", "v2.metadata.json", "v4.metadata.json")
        (folder / "metadata/version-hint.text").write_text("1\n")
        assert self.newest(folder) == "v2.metadata.json"

    def test_a_hint_to_nothing_is_an_error(self, folder, add):
        add("v1.metadata.json")
        (folder / "metadata/version-hint.text").write_text("7")
        with pytest.raises(ConfigurationError, match="there is no Iceberg table at"):
            IcebergSide(str(folder))

    def test_a_file_of_metadata_is_read_as_it_is(self, source, catalogue):
        table = made(catalogue, range(1, 50))
        old = table.metadata_location
        table.append(rows([50]))
        assert differences(source, table) == {}
        assert differences(source, StaticAt(old)) == {50: "missing"}


class StaticAt:
    """A table at one file of its metadata."""

    def __init__(self, path):
        self.path = path

    def location(self):
        return self.path
