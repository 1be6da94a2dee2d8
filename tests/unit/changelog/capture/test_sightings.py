"""Which sightings of the catalogue a frontier waits for."""

from dataclasses import replace

from changelog.capture.start.sightings import Judgement, judge
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.standing import SeenColumn, SeenStore, Sighting, Standing
from changelog.contract.rows.relation import TableName

INT = (23, -1)
ID = SeenColumn(1, 700, INT, missing=False)
KNOWN = Standing(50, TableName("public", "t"), {"id": ID}, 1, {61: SeenStore(61, 700, 700)}, {})


def added(standing, name):
    number = standing.last_number + 1
    column = SeenColumn(number, 900 + number, INT, missing=False)
    return replace(standing, columns={**standing.columns, name: column}, last_number=number)


def emptied(standing, xid):
    return replace(standing, stores={61: SeenStore(standing.stores[61].filenode + 1, xid, 700)})


def sighted(*found):
    return [Sighting(each, Lsn(before)) for each, before in found]


def test_nothing_was_sighted():
    assert judge(KNOWN, [], (), Lsn(5)) == Judgement(0)


def test_columns_wait_for_the_stream_and_hide_nothing_behind_them():
    one = added(KNOWN, "a")
    two = added(one, "b")
    found = sighted((one, 100), (two, 200))
    assert judge(KNOWN, found, (), Lsn(99)) == Judgement(0, columns=True)
    assert judge(KNOWN, found, (), Lsn(100)) == Judgement(1, columns=True)
    assert judge(KNOWN, found, (), Lsn(200)) == Judgement(2)
    renamed = replace(two, name=TableName("public", "u"))
    told = judge(KNOWN, [*found, *sighted((renamed, 300))], (), Lsn(0))
    assert 'is called "public.u" now' in told.change


def test_a_partition_that_was_emptied_waits_for_its_truncation():
    found = sighted((emptied(KNOWN, 800), 100))
    assert judge(KNOWN, found, (), Lsn(99)) == Judgement(0, unexplained=True)
    assert judge(KNOWN, found, {800}, Lsn(50)) == Judgement(1), "the stream has brought it"
    assert "by itself" in judge(KNOWN, found, (), Lsn(100)).change


def test_one_truncation_does_not_explain_the_next():
    once = emptied(KNOWN, 800)
    found = sighted((once, 100), (emptied(once, 801), 200))
    assert judge(KNOWN, found, {800}, Lsn(100)) == Judgement(1, unexplained=True)
    assert judge(KNOWN, found, {800, 801}, Lsn(100)) == Judgement(2)
    assert "by itself" in judge(KNOWN, found, {801}, Lsn(100)).change


def test_what_needs_no_word_of_the_stream_passes_but_not_before_what_does():
    granted = replace(KNOWN, columns={"id": replace(ID, xid=901)})
    assert judge(KNOWN, sighted((granted, 100)), (), Lsn(0)) == Judgement(1)
    found = sighted((added(KNOWN, "a"), 100), (added(granted, "a"), 200))
    assert judge(KNOWN, found, (), Lsn(0)) == Judgement(0, columns=True)
    assert judge(KNOWN, found, (), Lsn(100)) == Judgement(2)
