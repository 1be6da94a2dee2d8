"""Generations that take over files of others: what readers see of them, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from changelog.contract.base.errors import SinkError
from tests.conformance.conftest import delta_rows
from views.sinks.base import Change
from views.sinks.delta import changes
from views.sinks.delta import sink as delta_module
from views.sinks.delta.log import DeltaTables

pytestmark = pytest.mark.spark


def frame(bench, rows):
    made = [(number, text) for number, text in sorted(rows.items())]
    found = bench.spark.createDataFrame(made, "id bigint, part string")
    return found.selectExpr("id", "part", "timestamp_micros(id) moment").repartition(3)


def keys(bench, numbers):
    return bench.spark.createDataFrame([(each,) for each in sorted(numbers)], "id bigint")


def whole(bench, number, rows):
    sink, made = bench.sink(), frame(bench, rows)
    sink.open(number, made.schema)
    sink.write(made)
    return sink


def changed(bench, number, prior, gone, rows):
    sink, made = bench.sink(), frame(bench, rows)
    change = Change(prior=prior, gone=keys(bench, gone), keys=len(gone), rows=made)
    assert sink.obstacle(change) is None
    sink.open(number, made.schema)
    sink.change(change)
    return sink


def publish(sink, number):
    sink.seal()
    sink.publish(number)
    return sink


def stable(bench) -> str:
    return f"{bench.settings.warehouse}/{bench.view}"


def by_key(rows):
    found = {row["id"]: row["part"] for row in rows}
    assert len(found) == len(rows)
    return found


def in_spark(bench, path):
    return by_key([row.asDict() for row in bench.spark.read.format("delta").load(path).collect()])


def readers(bench, path):
    """What deltalake's engine and Spark's Delta see of a table."""
    return by_key(delta_rows(path)), in_spark(bench, path)


def some_change(chance, rows):
    """Rows that are updated, deleted and new, and keys without a row."""
    gone = set(chance.sample(sorted(rows), min(len(rows), chance.randint(0, 9))))
    gone |= {chance.randint(1000, 1100) for _ in range(chance.randint(0, 5))}
    return gone, {key: f"{chance.random()}" for key in gone if chance.random() < 0.7}


def test_every_reader_sees_the_changed_rows(delta, monkeypatch):
    """Six changes one after the other: the log is put together at the fourth commit."""
    monkeypatch.setattr("views.sinks.delta.log._CHECKPOINT_EVERY", 4)
    chance = random.Random(7)  # noqa: S311
    rows = {number: f"first {number}" for number in range(300)}
    sink = publish(whole(delta, 1, rows), 1)
    for number in range(2, 8):
        gone, new = some_change(chance, rows)
        rows = {key: text for key, text in rows.items() if key not in gone} | new
        sink = changed(delta, number, number - 1, gone, new)
        assert sink.published() == number - 1
        publish(sink, number)
        assert sink.rows(number) == len(rows)
        assert by_key(delta_rows(stable(delta))) == rows
        assert by_key(delta_rows(sink.address(number).location["path"])) == rows
        if number > 2:
            sink.discard(number - 2)  # others have its bytes under names of their own
        if number == 5:
            assert readers(delta, stable(delta)) == (rows, rows)
    checkpoints = list(Path(stable(delta), "_delta_log").glob("*.checkpoint*.parquet"))
    assert checkpoints, "the stable table's log was put together"
    assert in_spark(delta, sink.address(7).location["path"]) == rows
    publish(whole(delta, 8, {1: "a"}), 8)
    assert readers(delta, stable(delta)) == ({1: "a"}, {1: "a"})
    sink.publish(7)
    assert readers(delta, stable(delta)) == (rows, rows)


@pytest.mark.matrix
def test_readers_that_know_no_vectors_can_read_what_is_whole_again(delta):
    publish(whole(delta, 1, {1: "a", 2: "b", 3: "c", 4: "d"}), 1)
    publish(changed(delta, 2, 1, {1}, {1: "x"}), 2)
    publish(whole(delta, 3, {1: "x"}), 3)
    publish(whole(delta, 4, {1: "y"}), 4)
    assert readers(delta, stable(delta)) == ({1: "y"}, {1: "y"})
    assert DeltaTable(stable(delta)).to_pyarrow_table().num_rows == 1


def test_twin_a_mark_at_another_row_is_seen(delta, monkeypatch):
    honest = changes.positions_of

    def shifted(*arguments):
        found = honest(*arguments)
        return {name: BitMap64(at + 1 for at in rows) for name, rows in found.items()}

    monkeypatch.setattr(delta_module, "positions_of", shifted)
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    publish(changed(delta, 2, 1, {3}, {3: "b"}), 2)
    rows = delta_rows(stable(delta)) or []
    assert sorted(row["part"] for row in rows if row["id"] == 3) != ["b"]


def test_a_row_under_a_key_that_stays_is_refused(delta):
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    sink = changed(delta, 2, 1, {3}, {4: "b"})
    with pytest.raises(SinkError, match="1 have keys whose rows stay"):
        sink.seal()
    sink.discard(2)
    assert len(by_key(delta_rows(stable(delta)))) == 30


def test_two_rows_of_one_key_are_refused(delta):
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    twice = frame(delta, {3: "b"})
    sink = delta.sink()
    change = Change(prior=1, gone=keys(delta, {3}), keys=1, rows=twice.unionByName(twice))
    sink.open(2, twice.schema)
    sink.change(change)
    with pytest.raises(SinkError, match=r"several rows share one key \(id=3\)"):
        sink.seal()


def test_keys_of_more_rows_than_there_are_keys_are_refused(delta):
    sink = delta.sink(key=("id", "part"))
    made = frame(delta, {1: "a", 2: "b"}).unionByName(frame(delta, {1: "c", 3: "d", 4: "e"}))
    sink.open(1, made.schema)
    sink.write(made)
    publish(sink, 1)
    sink.open(2, made.schema)
    with pytest.raises(SinkError, match="1 keys have 2 rows"):
        sink.change(Change(prior=1, gone=keys(delta, {1}), keys=1, rows=made.limit(0)))


@pytest.mark.parametrize("lost", ["part-*.parquet", "deletion_vector_*.bin"])
def test_a_changed_generation_that_lost_a_file_is_not_published(delta, lost):
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    sink = changed(delta, 2, 1, {3}, {3: "b"})
    place = Path(sink.seal().location["path"])
    next(place.glob(lost)).unlink()
    with pytest.raises(SinkError, match="lacks 1 of its files"):
        sink.publish(2)
    assert by_key(delta_rows(stable(delta)))[3] == "a"


def test_what_is_not_sealed_does_not_count(delta):
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    sink = changed(delta, 2, 1, {3}, {3: "b"})
    with pytest.raises(SinkError, match="not sealed"):
        delta.sink().publish(2)
    delta.sink().discard(2)
    assert delta.sink().generations() == [1]
    assert readers(delta, stable(delta)) == (dict.fromkeys(range(30), "a"),) * 2
    assert sink.published() == 1


def test_when_all_is_written_anew(delta, monkeypatch):
    publish(whole(delta, 1, dict.fromkeys(range(40), "a")), 1)
    sink = publish(changed(delta, 2, 1, set(range(9)), {}), 2)
    more = Change(prior=2, gone=keys(delta, {20, 21}), keys=2, rows=frame(delta, {20: "x"}))
    assert sink.obstacle(more) == "11 of the 40 rows in its files would be gone"
    less = Change(prior=2, gone=keys(delta, {20}), keys=1, rows=frame(delta, {20: "x"}))
    assert sink.obstacle(less) is None
    monkeypatch.setattr(delta_module, "MANY_FILES", 2)
    assert "files" in str(sink.obstacle(less))
    monkeypatch.setattr(delta_module, "MOST_KEYS", 0)
    assert "too many to be marked" in str(sink.obstacle(less))


def test_a_log_that_somebody_else_goes_on_with_is_an_error(delta, monkeypatch):
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    sink = changed(delta, 2, 1, {3}, {3: "b"})
    sink.seal()
    honest = DeltaTables._commits

    def late(self, uri):
        if uri == stable(delta):
            log = Path(uri, "_delta_log")
            (log / f"{len(list(log.glob('*.json'))):020d}.json").write_text("{}\n")
        return honest(self, uri)

    monkeypatch.setattr(DeltaTables, "_commits", late)
    with pytest.raises(SinkError, match="at the same time"):
        sink.publish(2)


def test_a_log_that_no_longer_names_its_files_is_not_gone_on_with(delta):
    """As after a clean-up by others: the commits up to the last checkpoint are gone."""
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    publish(changed(delta, 2, 1, {3}, {3: "b"}), 2)
    table = DeltaTable(stable(delta))
    table.create_checkpoint()
    log = Path(stable(delta), "_delta_log")
    for version in (0, 1):
        (log / f"{version:020d}.json").unlink()
    (log / f"{2:020d}.json").write_text('{"commitInfo": {"operation": "VACUUM END"}}\n')
    assert by_key(delta_rows(stable(delta)))[3] == "b"
    sink = changed(delta, 3, 2, {4}, {4: "c"})
    sink.seal()
    with pytest.raises(SinkError, match="do not list all of its files"):
        sink.publish(3)
    assert by_key(delta_rows(stable(delta)))[4] == "a"


def test_a_log_that_cannot_be_put_together_is_published_all_the_same(delta, monkeypatch, caplog):
    monkeypatch.setattr("views.sinks.delta.log._CHECKPOINT_EVERY", 1)

    def fails(self):
        raise OSError("seeded")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fails)
    publish(whole(delta, 1, dict.fromkeys(range(30), "a")), 1)
    sink = publish(changed(delta, 2, 1, {3}, {3: "b"}), 2)
    assert sink.published() == 2
    assert "seeded" in caplog.text
