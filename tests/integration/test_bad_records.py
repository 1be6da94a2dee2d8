"""Records that cannot be read: an error that names them, or quarantined; never a wrong row.

The records are written by hand onto real topics, among them some that would end a reader that
trusts what a record says of itself.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import Op, encode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.codec import frame
from changelog.contract.rows.text import encode_long
from changelog.kafka.scan import OffsetRange
from changelog.kafka.scan import scan as read_records
from changelog.sink.frontier import FrontierLog
from replay.api.log import Log
from replay.base.config import OnBadRecord, ReplaySettings
from replay.base.failures import translated
from replay.scan import scan
from tests.support.builders import INTEGER, INTEGERS, TEXT, make_relation
from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
    write_settings,
)
from tests.support.certified_log import CertifiedLog
from tests.support.matrix import first
from views.generations.history import GenerationHistory

pytestmark = [pytest.mark.services, pytest.mark.spark]

RELATION = make_relation({"id": INTEGER, "name": TEXT, "ns": INTEGERS})
QUARANTINE = ReplaySettings(on_bad_record=OnBadRecord.QUARANTINE)
POSITION = "position"


def body(number: int, name: bytes = b"\x00", numbers: bytes = b"\x00") -> bytes:
    return encode_long(number) + name + numbers


BODIES = {
    "truncated": body(0)[:-2],
    "nothing at all": b"",
    "a union's branch that is not there": body(0, b"\x0c"),
    "an array of two thousand million": body(0, numbers=b"\x02" + encode_long(2**31 - 20)),
    "an array of more than any memory": body(0, numbers=b"\x02" + encode_long(2**60)),
    "a negative block": body(0, numbers=b"\x02" + encode_long(-(2**40)) + encode_long(3)),
    "a text of two gigabytes": body(0, b"\x02" + encode_long(2**31 - 20)),
    "a text of negative length": body(0, b"\x02" + encode_long(-5)),
    "a number of too many bytes": b"\xff" * 12,
}


@pytest.fixture
def bench(spark, kafka, registry, prefix, tmp_path):
    return CertifiedLog(spark, kafka, registry, prefix, tmp_path, RELATION, settings=QUARANTINE)


def test_bad_records_are_quarantined_with_their_rows_and_the_verifier_agrees(bench):
    log, good = bench.log, bench.value_frame
    log.put((b"1", b"good", b"{1,NULL}"))
    bad: dict[int, str] = {}
    for number, (name, found) in enumerate(BODIES.items(), 10):
        log.put((b"%d" % number, b"before", None))  # must not come back
        bench.put(number, good + found)
        bad[number] = name
    bench.put(30, frame(999_999) + body(30))
    bench.put(31, b"\x01" + good[1:] + body(31))
    bench.put(32, b"")
    log.put((b"33", b"before", None))
    bench.put(33, good + body(33), headers=[("op", b"u")])  # no position: who knows what is newer
    bench.put(34, None, headers=[(POSITION, b"short")])
    other_key = frame(int.from_bytes(good[1:], "big")) + encode_long(35)
    log.put_raw(other_key, good + body(35))
    bench.put(38, good + body(0, b"\x0c"))
    log.put((b"38", b"newer", None))  # what is superseded decides about nothing
    count = len(BODIES) + 6

    rows, apart, report = bench.outcome(bench.replay())
    assert rows == {1, 38}
    assert len(apart) == count
    assert {row.topic for row in apart.values()} == {log.topic}
    reasons = " ".join(sorted(row.reason for row in apart.values()))
    for word in ("no frame with a schema id", "does not follow its schema", '"position"', "pinned"):
        assert word in reasons
    (huge,) = [r for r in apart.values() if r.value == good + BODIES["a text of two gigabytes"]]
    assert bytes(huge.key) == log.codec.encode_key((b"16",))
    assert (report.mismatches, report.rows_expected) == (0, 2)
    assert f"{count} records of public.things cannot be read" in " ".join(report.notes)
    assert report.certificate["records_left_out"] == count


@pytest.mark.matrix
@pytest.mark.parametrize("name", first(1, ["an array of two thousand million", "truncated"]))
def test_by_default_a_bad_record_ends_the_replay_by_its_place(bench, name):
    bench.log.put((b"1", b"good", None))
    bench.put(2, bench.value_frame + BODIES[name])
    state = bench.replay(ReplaySettings()).states[bench.table]
    with (
        pytest.raises(CorruptRecordError, match=rf'topic "{bench.log.topic}", .* offset \d'),
        translated(),
    ):
        state.frame.collect()
    assert state.quarantined is None
    assert bench.spark.range(3).count() == 3  # Spark lives on


@pytest.mark.matrix
def test_a_record_without_a_position_that_did_not_win_would_leave_an_old_row(bench, monkeypatch):
    """The twin: a reader that lets such a record come first shows what it may have replaced."""

    def first_place(job, numbers):  # travels by its code, being no module's
        from unittest import mock

        from changelog.native.plain import fold
        from replay.scan import last_records, task
        from replay.scan import range as reading

        with (
            mock.patch.object(fold, "_LAST", b"\x00" * 20),
            mock.patch.object(last_records, "Fold", fold.Fold),
            mock.patch.object(reading, "RangeReader", fold.RangeReader),
        ):
            yield from task.run(job, numbers)

    monkeypatch.setattr(scan, "run", first_place)
    bench.log.put((b"33", b"before", None))
    bench.put(33, bench.value_frame + body(33), headers=[("op", b"u")])
    rows, apart, report = bench.outcome(bench.replay())
    assert (rows, apart) == ({33}, {})
    assert report.mismatches == 1


@pytest.mark.matrix
def test_a_fault_that_is_not_looked_at_makes_a_null_row_which_the_verifier_finds(
    bench, monkeypatch
):
    from replay.decode import decode

    bench.put(2, bench.value_frame + BODIES["truncated"])
    monkeypatch.setattr(decode, "_row_fault", lambda *_: F.lit(None).cast("string"))
    _, apart, report = bench.outcome(bench.replay())
    assert apart == {}
    assert report.mismatches == 1


@pytest.mark.parametrize("generations", first(1, [[2], [2, 3]]))
def test_a_rebuild_fails_by_default_and_leaves_the_row_out_when_told(
    bench, endpoints, tmp_path, capsys, monkeypatch, generations
):
    log = bench.log
    log.put((b"1", b"good", None))
    log.put((b"2", b"before", None))
    bench.put(2, bench.value_frame + BODIES["truncated"])
    slot = log.frontier_topic.partition(".")[0]
    log.freeze(slot=slot)
    project = CapturedProject(tmp_path / "project", "")
    write_settings(project.root, endpoints, "", slot)
    project.view("named.sql", "-- key: id\nSELECT id, name FROM things")

    refused = rebuild_view(capsys, monkeypatch, project, "named", "--json")
    assert refused.code == 1
    assert f'topic \\"{log.topic}\\"' in refused.out
    assert project.history("named") == [(1, "failed")]

    options = ("named", "--on-bad-record", "quarantine", "--json")
    for generation in generations:
        ran = rebuild_view(capsys, monkeypatch, project, *options)
        assert ran.code == 0, ran.err
        (result,) = ran.results
        assert (result["generation"], result["quarantined"]) == (generation, 1)
        assert (result["verified"], result["published"]) == (True, True)
        assert result["certificates"]["delta"]["certificate"]["records_left_out"] == 1
    assert project.delta("named") == [{"id": 1, "name": "good"}]
    (kept,) = project.delta("_quarantine")  # one row, however often it was met
    assert (kept["topic"], kept["key"]) == (log.topic, log.codec.encode_key((b"2",)))
    assert kept["value"] == bench.value_frame + BODIES["truncated"]
    assert "does not follow its schema" in kept["reason"]
    newest = GenerationHistory(str(project.warehouse)).rows(["named"])[-1]
    assert "1 unreadable record" in newest.note


@pytest.mark.matrix
def test_a_strangers_records_are_left_behind_by_a_fresh_copy(
    stack, kafka, tmp_path, capsys, monkeypatch
):
    """One is no record at all; one has the key of a row, and is said to be newer than all."""
    tables = """CREATE TABLE things (id integer PRIMARY KEY, name text);
        INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 9) n"""
    with captured_database(stack, tmp_path / "project", tables) as (project, prefix):
        topic = f"{prefix}.things"
        with FrontierLog(kafka, frontier_topic(prefix)) as frontiers:
            record = frontiers.last(prefix)
        assert record is not None
        frontier = record.frontier
        ranges = [OffsetRange(topic, n, 0, end) for n, end in enumerate(frontier.ends[topic])]
        ours = next(iter(read_records(kafka, ranges)))
        later = encode_headers(Position(frontier.epoch + 1, Lsn(1), 0), Op.UPDATE, 0)
        producer = Producer({**kafka.client_config(), "log_level": 0})
        producer.produce(topic, ours.key(), ours.value(), ours.partition() or 0, headers=later)
        producer.produce(topic, b"stranger", b"no row of ours", 0)
        assert producer.flush(60) == 0
        project.execute("UPDATE things SET name = name || '!'")
        project.view("named.sql", "-- key: id\nSELECT id, name FROM things")
        project.capture()
        ran = rebuild_view(capsys, monkeypatch, project, "named", "--json")
        assert ran.code == 0, ran.err
        (result,) = ran.results
        assert (result["verified"], result["published"]) == (True, True)
        expected = project.query("SELECT id, name FROM things ORDER BY id")
        assert [tuple(row.values()) for row in project.delta("named")] == expected
        rows = Log.open(project.root).table("things").arrow(engine="local").to_pylist()
        assert sorted((row["id"], row["name"]) for row in rows) == expected
