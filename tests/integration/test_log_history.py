"""What happens to a topic in its life: more partitions, more versions of its schema."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812

from changelog.contract.base.errors import CorruptRecordError, VerdictError
from replay.base.failures import translated
from replay.cut.cut import make_cut
from replay.scan import fold
from tests.support.builders import INTEGER, TEXT, make_relation
from tests.support.certified_log import CertifiedLog

pytestmark = [pytest.mark.services, pytest.mark.spark]


@pytest.fixture
def bench(spark, kafka, registry, prefix, tmp_path):
    return CertifiedLog(spark, kafka, registry, prefix, tmp_path, make_relation(), partitions=3)


def grow(bench):
    """Write 40 rows, grow from three partitions to six, change 20 rows and delete ten; returns the
    frontier from before."""
    log = bench.log
    for number in range(40):
        log.put((b"%d" % number, b"old"))
    before = log.freeze()
    log.grow(6)
    for number in range(20):
        log.put((b"%d" % number, b"new"))
    for number in range(20, 30):
        log.delete_key(b"%d" % number)
    return before


@pytest.mark.matrix
def test_a_topic_that_grew_from_three_to_six_partitions_folds_by_position(bench):
    before, log = grow(bench), bench.log
    assert "6 partitions, the frontier knows 3" in str(
        make_cut(log.kafka, before, [bench.table]).verdict
    )
    with pytest.raises(VerdictError, match="6 partitions"):
        make_cut(log.kafka, before, [bench.table]).verdict.require()
    rows, _, report = bench.outcome(bench.replay())
    assert rows == {*range(20), *range(30, 40)}
    assert report.mismatches == 0
    state = bench.replay().states[bench.table].frame
    assert {row.name for row in state.where("id < 20").collect()} == {"new"}


def test_a_key_that_lies_in_two_partitions_of_a_topic_that_never_grew_fails_the_read(bench):
    grow(bench)
    record = bench.log.freeze(grown={})
    state = bench.replay(record=record).states[bench.table].frame
    with pytest.raises(CorruptRecordError, match="its key belongs to partition"), translated():
        state.collect()


@pytest.mark.matrix
def test_twin_a_fold_that_trusts_a_key_to_have_one_partition_is_refuted(bench, monkeypatch):
    grow(bench)

    def in_each_partition(records, columns):
        whole = F.struct(*columns)
        last = records.groupBy("key", "partition").agg(F.max_by(whole, "position").alias("last"))
        return last.select("key", "last.*")

    monkeypatch.setattr(fold, "last_of_each_key", in_each_partition)
    _, _, wrong = bench.outcome(bench.replay())
    assert wrong.mismatches > 0


def test_replay_and_verifier_read_by_the_same_version_of_the_schema(bench):
    bench.log.put((b"1", b"a"))
    bench.log.evolve(make_relation({"id": INTEGER, "name": TEXT, "later": TEXT}))
    replay = bench.replay()  # no record bears the newer version yet
    assert replay.states[bench.table].frame.columns == ["id", "name", "later"]
    assert bench.outcome(replay)[2].mismatches == 0
    with pytest.raises(Exception, match="later"):  # the twin: each reads what it finds
        bench.outcome(replay, pins=False)
