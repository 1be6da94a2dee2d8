"""Tables that others inherit from, in frontiers and in words."""

from dataclasses import replace

from changelog.contract.base.lsn import Lsn
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName, unread

PARENT, CHILD, OTHER = (TableName("public", name) for name in ("parent", "child", "other"))
CHILDREN = {PARENT: (CHILD, TableName("odd.schema", 'a "b"'))}
PLAIN = Frontier(slot="s", epoch=1, lsn=Lsn(5), ts_us=7)


def test_a_frontier_brings_the_children_back():
    made = replace(PLAIN, children=CHILDREN)
    assert Frontier.from_json(made.to_json()) == made


def test_a_frontier_of_before_has_none():
    assert Frontier.from_json(PLAIN.to_json().replace('"children":[],', "")).children == {}


def test_a_parent_is_told_with_the_children_that_are_not_read_beside_it():
    (said,) = unread([PARENT, CHILD], CHILDREN)
    assert f"without those of {CHILDREN[PARENT][1]}, which" in said
    assert "public.child" not in said


def test_nothing_is_told_of_a_whole_family_or_of_other_tables():
    assert unread([PARENT, *CHILDREN[PARENT]], CHILDREN) == []
    assert unread([CHILD, OTHER], CHILDREN) == []
