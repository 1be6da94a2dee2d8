"""Which index gives a table without a primary key its key."""

import pytest

from changelog.contract.rows.relation import ReplicaIdentity, TableName
from changelog.source.tables.key_index import AUTO, Index, identity_obstacle, pick

ONE = Index(11, "one", is_identity=False, columns=["a"], fault="")
TWO = Index(12, "two", is_identity=False, columns=["a", "b"], fault="")
IDENTITY = Index(13, "identity", is_identity=True, columns=["b"], fault="")
ONE_TWO = ("one", "two")
PARTIAL = Index(14, "partial", is_identity=False, columns=["b"], fault="is partial")


@pytest.mark.parametrize(
    ("wanted", "indexes", "name"),
    [
        (AUTO, [ONE, PARTIAL], "one"),
        (AUTO, [ONE, IDENTITY, TWO], "identity"),
        ("two", [ONE, IDENTITY, TWO], "two"),
    ],
)
def test_the_index_that_is_picked(wanted, indexes, name):
    picked = pick(wanted, indexes).index
    assert picked is not None
    assert picked.name == name


@pytest.mark.parametrize(
    ("wanted", "indexes", "why", "fit"),
    [
        (AUTO, [ONE, TWO], 'several unique indexes that can give its key: "one", "two"', ONE_TWO),
        (AUTO, [PARTIAL], "no unique index that can give its key", ()),
        ("partial", [PARTIAL], '"partial", which is to give its key and is partial', ()),
        ("none", [ONE, PARTIAL], 'no index "none"', ("one",)),
        ("none", [], 'no index "none"', ()),
    ],
)
def test_what_is_refused_says_why_and_what_could_be_named(wanted, indexes, why, fit):
    picked = pick(wanted, indexes)
    assert picked.index is None
    assert why in picked.obstacle
    assert picked.fit == fit


def test_old_keys_have_to_come_with_the_stream():
    table = TableName("a", 'b"')
    for index, identity in ((ONE, ReplicaIdentity.FULL), (IDENTITY, ReplicaIdentity.INDEX)):
        assert identity_obstacle(table, index, identity, partitioned=False) == ("", "")
    for identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.NOTHING, ReplicaIdentity.INDEX):
        why, mend = identity_obstacle(table, ONE, identity, partitioned=False)
        assert '"one", which is not its REPLICA IDENTITY' in why
        assert mend.startswith('ALTER TABLE "a"."b""" REPLICA IDENTITY USING INDEX "one", or --')
    why, _ = identity_obstacle(table, ONE, ReplicaIdentity.FULL, partitioned=True)
    assert "is partitioned" in why
