"""`from replay import Log` on a real broker and registry, without Spark; the log is by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from changelog.contract.base.errors import (
    ConfigurationError,
    CorruptRecordError,
    NoFrontierError,
    VerdictError,
)
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.partition import partition_of
from changelog.contract.rows.relation import Column
from changelog.contract.rows.types import column_type
from replay import Log
from replay.base.config import ReplaySettings
from replay.broker.topics import inspect
from tests.support.builders import INTEGER, make_relation
from tests.support.log_writer import CLEAN_AT_ONCE, LogWriter
from tests.support.wait import wait_until

pytestmark = pytest.mark.services
QUICK = {
    **CLEAN_AT_ONCE,
    "min.compaction.lag.ms": "3000",
    "max.compaction.lag.ms": "3500",
    "delete.retention.ms": "600000",
}


@pytest.fixture
def make(kafka, registry, prefix):
    def made(**more) -> LogWriter:
        return LogWriter(kafka, registry, make_relation(), prefix=prefix, **more)

    return made


@pytest.fixture
def log(kafka, registry, prefix) -> Log:
    return Log(
        kafka=kafka.brokers,
        kafka_options=kafka.options,
        registry=registry.url,
        slot="slot",
        topic_prefix=prefix,
    )


def rows(table) -> dict[int, str]:
    return {row["id"]: row["name"] for row in table.to_pylist()}


def test_a_table_is_read_here_as_it_is_left_at_its_frontier(make, log):
    writer = make()
    for number in range(6):
        writer.put((b"%d" % number, b"first"))
    writer.put((b"1", b"second"))
    writer.delete_key(b"2")
    writer.put((b"4", None))
    position = writer.put((b"5", b"of a later transaction"))
    record = writer.freeze(lsn=position.commit_lsn)
    writer.put((b"0", b"after the frontier"))
    writer.flush()
    things = log.table("things")
    assert rows(things.arrow()) == {0: "first", 1: "second", 3: "first", 4: None, 5: "first"}
    assert rows(things.arrow()) == rows(things.arrow(engine="local"))
    assert things.arrow(["name"]).column_names == ["name"]
    assert things.pandas().set_index("id").loc[1, "name"] == "second"
    assert things.duckdb().aggregate("count(*), count(name)").fetchall() == [(5, 4)]
    assert [things.row(number) for number in (1, 2, 9)] == [{"id": 1, "name": "second"}, None, None]
    assert things.row("1") == things.row((1,)) == things.row({"id": 1})
    assert things.frontier().record == record
    assert log.frontier().lsn == record.frontier.lsn
    assert log.tables().names == ("things",)
    assert log.verdict().is_exact
    assert "things" in log.tables()._repr_html_()


def test_every_version_and_every_change_since_a_frontier_is_told(make, log):
    writer = make()
    positions = [writer.put((b"%d" % number, b"before")) for number in (1, 2, 3)]
    first = writer.freeze().frontier.lsn
    writer.put((b"1", b"once"), Op.UPDATE)
    writer.put((b"1", b"twice"), Op.UPDATE)
    writer.delete_key(b"2")
    writer.put((b"4", b"new"))
    again = encode_headers(positions[0], Op.CREATE, 0)
    key, value = writer.codec.encode_key((b"1",)), writer.codec.encode_value((b"1", b"before"))
    writer.put_raw(key, value, headers=again)
    second = writer.freeze().frontier.lsn
    things = log.table("things")
    changes = things.changes(first)
    assert (changes.start, changes.end, len(changes)) == (first, second, 6)
    told = [(row["_change_type"], row["id"], row["name"]) for row in changes.arrow().to_pylist()]
    assert told == [
        ("update_preimage", 1, "before"),
        ("update_postimage", 1, "once"),
        ("update_preimage", 1, "once"),
        ("update_postimage", 1, "twice"),
        ("delete", 2, "before"),
        ("insert", 4, "new"),
    ]
    lsns = [Lsn.parse(text) for text in changes.arrow()["_commit_lsn"].to_pylist()]
    assert lsns == sorted(lsns)
    assert first <= lsns[0]
    assert lsns[-1] < second
    assert len(things.changes(second)) == 0
    assert len(things.changes(first, str(first))) == 0
    with pytest.raises(ConfigurationError, match="the end lies before the start"):
        things.changes(second, first)
    history = things.history(1)
    assert [each.row["name"] for each in history] == ["before", "once", "twice"]
    assert history[0].change == "insert"
    assert history[-1].lsn == lsns[2]
    assert history.complete_since < datetime.now(UTC) - timedelta(hours=5)
    gone = things.explain(2)
    assert gone.version.change == "delete"
    assert gone.version.row is None
    assert [each.row["name"] for each in gone.superseded] == ["before"]
    assert things.at(first).row(2) == {"id": 2, "name": "before"}
    assert rows(things.at(str(first)).arrow()) == {1: "before", 2: "before", 3: "before"}
    with pytest.raises(ConfigurationError, match="no record of the key id = 99"):
        things.explain(99)


def test_changes_that_compaction_has_taken_are_refused_and_versions_said_to_be(make, log):
    # One machine has one clock.
    log._reach = replace(log._reach, settings=ReplaySettings(clock_allowance_ms=0))
    writer = make(partitions=1, settings=QUICK)
    writer.put((b"1", b"before"))
    first = writer.freeze()
    for text in (b"once", b"twice", b"thrice"):
        writer.put((b"1", text), Op.UPDATE)
    writer.freeze()
    things = log.table("things")
    names = [row["name"] for row in things.changes(first.frontier.lsn).arrow().to_pylist()]
    assert names == ["before", "once", "once", "twice", "twice", "thrice"]

    def is_cleaned() -> bool:
        writer.put((b"2", b"to fill a segment"))
        writer.freeze()
        return [each.row["name"] for each in things.history(1)] == ["thrice"]

    wait_until(is_cleaned, 60, "the cleaner has removed versions")
    with pytest.raises(VerdictError, match=r"cannot be given exactly|any more"):
        things.changes(first.frontier.lsn)
    history = things.history(1)
    assert [each.row["name"] for each in history][-1] == "thrice"
    assert history.complete_since > history[-1].time
    assert "compaction may have removed" in repr(history)


@pytest.mark.matrix
def test_a_topic_that_grew_is_read_whole_for_one_key(make, log):
    writer = make(partitions=1)
    for number in range(20):
        writer.put((b"%d" % number, b"old"))
    writer.grow(4)
    for number in range(10):
        writer.put((b"%d" % number, b"new"))
    writer.freeze()
    things = log.table("things")
    state = rows(things.arrow())
    assert state == {n: "new" if n < 10 else "old" for n in range(20)}
    assert {n: things.row(n)["name"] for n in range(20)} == state
    moved = [
        n for n in range(10) if things.history(n)[0].partition != things.history(n)[1].partition
    ]
    assert moved


def test_a_single_row_reads_its_own_partition_alone(make, log):
    writer = make(partitions=4)
    for number in range(40):
        writer.put((b"%d" % number, b"there"))
    key = writer.codec.encode_key((b"7",))
    home = partition_of(key, 4)
    broken = next(n for n in range(40) if _home(writer, n) != home)
    writer.put_raw(writer.codec.encode_key((b"%d" % broken,)), b"\0\0\0\0\0nothing")
    writer.freeze()
    things = log.table("things")
    assert things.row(7) == {"id": 7, "name": "there"}
    for read in (lambda: things.row(broken), things.arrow):
        with pytest.raises(CorruptRecordError, match="are no frame with a schema id of subject"):
            read()


def _home(writer: LogWriter, number: int) -> int:
    return partition_of(writer.codec.encode_key((b"%d" % number,)), 4)


def test_a_key_that_lies_where_it_does_not_belong_is_refused(make, log, kafka):
    writer = make(partitions=2)
    writer.put((b"1", b"there"))
    writer.flush()
    key, value = writer.codec.encode_key((b"1",)), writer.codec.encode_value((b"1", b"astray"))
    headers = encode_headers(Position(1, Lsn(100), 0), Op.CREATE, 0)
    producer = Producer(kafka.client_config())
    producer.produce(
        writer.topic, key=key, value=value, headers=headers, partition=1 - partition_of(key, 2)
    )
    producer.flush(30)
    writer.freeze()
    with pytest.raises(CorruptRecordError, match="its key belongs to partition"):
        log.table("things").arrow()


def test_rows_of_older_schemas_have_the_defaults_of_the_newest(make, log):
    writer = make()
    writer.put((b"1", b"old"))
    wider = replace(
        writer.relation,
        columns=(
            *writer.relation.columns,
            Column("later", INTEGER, default="7"),
            Column("last", column_type("bytea", "bytea")),
        ),
    )
    writer.evolve(wider)
    writer.put((b"2", b"new", b"9", b"\\x00ff"))
    writer.freeze()
    found = sorted(log.table("things").arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 1, "name": "old", "later": 7, "last": None},
        {"id": 2, "name": "new", "later": 9, "last": b"\x00\xff"},
    ]


def test_a_topic_made_anew_is_refused(make, log):
    writer = make()
    writer.put((b"1", b"first life"))
    writer.freeze()
    writer.delete()
    writer.create(writer.topic, 2, QUICK)
    for read in (log.table("things").arrow, lambda: log.table("things").row(1)):
        with pytest.raises(VerdictError):
            read()
    assert not log.verdict().is_exact


def test_what_is_not_there_is_said_in_words(make, log):
    with pytest.raises(NoFrontierError):
        log.tables()
    writer = make()
    writer.put((b"1", b"there"))
    writer.freeze()
    things = log.table("things")
    with pytest.raises(ConfigurationError, match=r'table "public\.nothing" is not captured'):
        log.table("nothing").arrow()
    with pytest.raises(ConfigurationError, match='no column "colour"'):
        things.arrow(["colour"])
    with pytest.raises(ConfigurationError, match="'one' is no value of its key column \"id\""):
        things.row("one")
    with pytest.raises(ConfigurationError, match="a key of 2 values was given, it has 1"):
        things.row((1, 2))
    with pytest.raises(ConfigurationError, match='no engine "duck"'):
        things.arrow(engine="duck")
    with pytest.raises(VerdictError, match="nearest that can be given: LSN 0/"):
        things.at("2001-01-01").arrow()


def test_a_secret_is_in_no_text_of_a_log(kafka, registry):
    log = Log(
        kafka=kafka.brokers,
        registry="http://user:hidden@127.0.0.1:1",
        kafka_options={"sasl.password": "hidden"},
        registry_options={"basic.auth.user.info": "user:hidden"},
    )
    assert "hidden" not in repr(log) + repr(log.table("things")) + repr(vars(log))


@pytest.mark.slow
def test_a_cold_interpreter_answers_in_two_seconds_of_work(make, log, kafka, registry, prefix):
    """CPU time, which other tests beside this one do not lengthen as they do the clock's."""
    writer = make(partitions=2)
    for number in range(5_000):
        writer.put((b"%d" % number, b"a row like others"))
    writer.freeze()
    code = (
        "from replay import Log\n"
        f"log = Log(kafka={kafka.brokers!r}, kafka_options={dict(kafka.options)!r}, "
        f"registry={registry.url!r}, slot='slot', topic_prefix={prefix!r})\n"
        "things = log.table('things')\n"
        "assert things.arrow().num_rows == 5000\n"
        "assert things.row(4711)['name'] == 'a row like others'\n"
        "import sys\n"
        "assert not {'pyspark', 'duckdb'} & sys.modules.keys()"
    )
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    after = os.times()
    spent = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    assert spent < 4, f"{spent:.1f} s for both reads"


def test_the_topic_is_what_it_was(make, log):
    """Reading a log leaves no trace on it: no group, no topic."""
    writer = make()
    writer.put((b"1", b"there"))
    writer.freeze()
    before = inspect(writer.kafka, [writer.topic])
    log.table("things").arrow()
    assert inspect(writer.kafka, [writer.topic]) == before
