import json
from dataclasses import replace

import pytest

from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.lsn import Lsn
from changelog.contract.log.standing import (
    PublicationVersion,
    SeenColumn,
    SeenStore,
    Sighting,
    Standing,
    Standings,
)
from changelog.contract.rows.relation import KeyIndex, TableName
from changelog.contract.rows.user_type import EnumType, Label

INT, BIGINT = (23, -1), (20, -1)
COLUMNS = {
    "id": SeenColumn(1, 700, INT, missing=False),
    "a": SeenColumn(2, 700, INT, missing=False),
}
PLAIN = Standing(50, TableName("public", "t"), COLUMNS, 2, {50: SeenStore(50, 700)}, {})
ROOT = replace(PLAIN, stores={61: SeenStore(61, 700, 700), 62: SeenStore(62, 700, 700)})


def column(number, *, xid=900, kind=INT, missing=False, **more):
    return SeenColumn(number, xid, kind, missing, **more)


def with_columns(last=None, **columns):
    there = {name: each for name, each in {**COLUMNS, **columns}.items() if each}
    return replace(PLAIN, columns=there, last_number=last or max(c.number for c in there.values()))


def new_file(standing, **columns):
    return replace(standing, columns={**COLUMNS, **columns}, stores={50: SeenStore(51, 900)})


@pytest.mark.parametrize(
    ("names", "moved"),
    [
        ("id a c", []),
        ("id c", []),
        ("id a c new", []),
        ("gone id a c", ["a", "id"]),
        ("id c a", ["a", "c"]),
        ("id a gone c", []),  # a column that has gone since may have stood there
        ("id gone a c", ["a"]),
    ],
)
def test_a_name_stands_where_the_number_of_its_column_lets_it(names, moved):
    assert with_columns(c=column(4)).misplaced(names.split()) == moved


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (PLAIN, ""),
        (with_columns(b=column(3)), ""),
        (with_columns(a=None), ""),
        (with_columns(a=column(2, kind=BIGINT)), ""),  # without a new file
        (new_file(PLAIN), ""),  # VACUUM FULL
        (with_columns(a=column(3)), "columns ['a'] are others of the same name"),
        (with_columns(a=None, c=column(2)), "columns ['c'] were renamed"),
        (with_columns(b=column(4)), "columns ['b'] came, and others came and went"),
        (new_file(PLAIN, a=column(2)), "columns ['a'] were altered"),
        (replace(PLAIN, name=TableName("public", "u")), 'is called "public.u" now'),
    ],
)
def test_marks_of_a_table(now, says):
    found = now.change_since(PLAIN, ())
    assert (says in found) if says else (found == "")


def test_an_index_that_gives_the_key_is_the_same_one_or_a_mark():
    index = KeyIndex(70, "one", ("id", "a"))
    keyed = replace(PLAIN, key_index=index)
    assert replace(keyed, key_index=replace(index, name="two")).change_since(keyed, ()) == ""
    for other in (None, replace(index, oid=71), replace(index, columns=("a", "id"))):
        assert "another index" in replace(keyed, key_index=other).change_since(keyed, ())
    found = Standings(1, {"t": keyed, "u": PLAIN})
    assert Standings.from_json(found.to_json()) == found


def test_a_primary_key_is_the_same_one_or_a_mark():
    keyed = replace(PLAIN, key_constraint=80)
    now = replace(keyed, key_constraint=81)
    assert "its primary key was made anew" in now.change_since(keyed, ())
    assert now.change_since(PLAIN, ()) == "", "an earlier version has not looked"
    assert keyed.change_since(replace(keyed, key_constraint=0), ()) == ""
    found = Standings(1, {"t": keyed, "u": replace(keyed, hears_truncate=False)})
    assert Standings.from_json(found.to_json()) == found


def test_a_constant_that_a_rewrite_takes_out_is_no_mark():
    before = replace(PLAIN, columns={**COLUMNS, "a": column(2, xid=800, missing=True)})
    assert new_file(PLAIN, a=column(2, cleared=True)).change_since(before, ()) == ""
    for more in ({}, {"came": True}):
        revalued = new_file(PLAIN, a=column(2, **more))
        assert "altered" in revalued.change_since(before, ())
    # Altered to the same type, and more was said of it later in the same transaction.
    known = replace(before, columns={**COLUMNS, "a": replace(before.columns["a"], rest="x")})
    same, other = (new_file(PLAIN, a=column(2, cleared=True, rest=each)) for each in "xy")
    assert same.change_since(known, ()) == ""
    assert "altered" in other.change_since(known, ())
    assert other.change_since(before, ()) == ""  # an earlier version has not looked at the rest
    retyped = new_file(PLAIN, a=column(2, kind=BIGINT))
    assert "altered" in retyped.change_since(before, ())


def test_a_column_that_came_with_a_new_file_may_have_values():
    def came(**named):
        now = new_file(PLAIN, b=column(3, **named))
        return replace(now, last_number=3).change_since(PLAIN, ())

    for more in ({}, {"cleared": True}):
        assert "columns ['b'] came and the table was rewritten" in came(**more)
    # The new file is older than the column.
    assert came(came=True) == came(missing=True) == ""


def test_a_truncation_that_the_stream_has_brought_explains_a_new_file():
    now = new_file(PLAIN, a=column(2, xid=899))
    assert now.is_unexplained(PLAIN, ())
    assert not now.is_unexplained(PLAIN, {900})
    assert now.change_since(PLAIN, {900}) == ""
    assert not new_file(PLAIN).is_unexplained(PLAIN, ())  # VACUUM FULL needs no explanation


def test_columns_that_came_after_a_truncation_leave_it_told_by_the_indexes():
    def added():
        store = SeenStore(51, 902, indexed=frozenset([900, 899]))
        columns = {**COLUMNS, "b": column(3, xid=901)}
        return replace(PLAIN, columns=columns, last_number=3, stores={50: store})

    assert "came and the table was rewritten" in added().change_since(PLAIN, {800})
    assert added().change_since(PLAIN, {900}) == ""
    # Whether the values came with the transaction of the truncation, behind it.
    at_once = replace(added(), columns={**COLUMNS, "b": column(3, xid=900)})
    assert "came and the table was rewritten" in at_once.change_since(PLAIN, {900})
    for more in ({"came": True}, {"missing": True}):
        behind = replace(added(), columns={**COLUMNS, "b": column(3, xid=900, **more)})
        assert behind.change_since(PLAIN, {900}) == ""
    altered = new_file(PLAIN, a=column(2, xid=900))
    assert "were altered" in altered.change_since(PLAIN, {900})


def parted(**stores):
    return replace(ROOT, stores={**ROOT.stores, **{int(k[1:]): v for k, v in stores.items()}})


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (parted(p63=SeenStore(63, 900, 900)), ""),
        (parted(p63=SeenStore(63, 800, 900, attached=True)), "was attached"),
        (parted(p62=SeenStore(62, 900, 900, attached=True)), "was attached"),
        (replace(ROOT, stores={61: ROOT.stores[61]}), "detached or dropped"),
        (parted(p62=SeenStore(70, 900, 700)), "truncated or rewritten by itself"),
        (parted(p63=SeenStore(70, 900, 900)), "truncated or rewritten by itself"),
        (parted(p63=SeenStore(0, 900, 900)), ""),  # partitioned itself
    ],
)
def test_marks_of_partitions(now, says):
    found = now.change_since(ROOT, ())
    assert (says in found) if says else (found == "")


def test_a_truncation_that_the_stream_has_brought_explains_new_files():
    now = parted(p61=SeenStore(71, 900, 700), p62=SeenStore(72, 900, 700))
    assert now.is_unexplained(ROOT, ())
    assert not now.is_unexplained(ROOT, {900})
    assert now.change_since(ROOT, {900}) == ""
    came = parted(p63=SeenStore(70, 900, 800))
    assert came.is_unexplained(ROOT, ())
    assert came.change_since(ROOT, {900}) == ""
    again = parted(p61=SeenStore(71, 900, 700), p62=SeenStore(73, 901, 700))
    assert "by itself" in again.change_since(ROOT, {900})
    later = parted(p61=SeenStore(71, 901, 700, indexed=frozenset([900])))
    assert later.change_since(ROOT, {900}) == ""


MOOD = EnumType("mood", late=False, labels={80: Label("sad", 700)})


def test_types_that_an_earlier_version_has_not_looked_at_are_no_mark():
    now = replace(PLAIN, types={79: MOOD})
    raw = json.loads(Standings(3, {"t": now}).to_json())
    del raw["types"], raw["tables"]["t"][5:]  # as that version wrote it
    before = Standings.from_json(json.dumps(raw)).tables["t"]
    assert before == replace(PLAIN, types=None)
    assert now.change_since(before, ()) == ""
    blue = replace(PLAIN, types={79: replace(MOOD, labels={80: Label("blue", 900)})})
    assert 'label "sad" of type mood' in blue.change_since(now, ())


def test_a_type_that_many_tables_show_is_written_once():
    shows = replace(PLAIN, types={79: MOOD})
    one, two = (Standings(3, dict.fromkeys("ab"[:n], shows)).to_json() for n in (1, 2))
    assert (one.count('"sad"'), two.count('"sad"')) == (1, 1)


SENT = PublicationVersion((7, 700), "p", frozenset({(50, "table 8:1"), (51, "table 9:1")}))


@pytest.mark.parametrize(
    ("now", "taken_out"),
    [
        (SENT, frozenset()),
        (replace(SENT, entries=SENT.entries | {(52, "table 10:2")}), frozenset()),
        (replace(SENT, entries=frozenset({(50, "table 8:1"), (51, "table 11:2")})), {51}),
        (replace(SENT, own=(7, 701)), None),  # altered, and altered back
        (replace(SENT, own=(7, 701), says="p of another owner"), frozenset()),
        (replace(SENT, own=(12, 702)), None),
    ],
)
def test_what_a_publication_did_not_send_for_a_while(now, taken_out):
    assert now.taken_out_since(SENT) == taken_out


def test_all_tables_are_taken_out_with_a_schema():
    before = replace(SENT, entries=frozenset({(60, "schema 61:1")}))
    assert replace(SENT, entries=frozenset({(60, "schema 62:2")})).taken_out_since(before) is None


def test_standings_survive_text():
    found = Standings(
        3,
        {
            "t": replace(PLAIN, types={79: MOOD}),
            "r": parted(p63=SeenStore(63, 1, 2, attached=True)),
        },
        {"t": (Sighting(new_file(PLAIN, a=column(2, cleared=True)), Lsn(700)),)},
        SENT,
    )
    again = Standings.from_json(found.to_json())
    assert again == found
    assert again.sighted["t"][0].standing.columns["a"].cleared
    with pytest.raises(CorruptRecordError):
        Standings.from_json('{"epoch": 1, "tables": {"t": [1]}}')


def test_the_publications_of_groups_are_part_of_a_version():
    side = PublicationVersion((8, 800), "s", frozenset({(60, "table 60:1"), (61, "table 61:1")}))
    both = replace(SENT, groups=(("p_side", side),))
    assert PublicationVersion.from_json(both.to_json()) == both
    assert both.taken_out_since(both) == frozenset()
    less = replace(side, entries=frozenset({(60, "table 60:1"), (61, "table 61:2")}))
    assert replace(SENT, groups=(("p_side", less),)).taken_out_since(both) == frozenset({61})
    assert SENT.taken_out_since(both) == frozenset({60, 61})
    made_anew = replace(side, own=(9, 900))
    assert replace(SENT, groups=(("p_side", made_anew),)).taken_out_since(both) is None


def test_a_new_file_is_a_truncation_where_the_stream_has_none():
    deaf = replace(PLAIN, hears_truncate=False)
    now = replace(deaf, stores={50: SeenStore(51, 701)})
    assert "was truncated" in now.change_since(deaf, ())
    assert not now.is_unexplained(deaf, ())
    assert Standing.from_json(now.to_json({}), ()) == replace(now, types={})
    assert not replace(now, hears_truncate=True).change_since(PLAIN, ())
