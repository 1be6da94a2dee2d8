"""Schema changes to records: which are written, and as what."""

import json

from changelog.capture.write.messages import DdlWriter
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import TableName
from changelog.source.stream.assemble import Began, Emitted
from changelog.source.tables.ddl import DDL_PREFIX

BEGAN = Began(Lsn(1000), 77, 5)
TABLES = {1: TableName("old", "a"), 2: TableName("old", "b")}


class Bench:
    def __init__(self):
        self.records = []
        self.writer = DdlWriter(self, TABLES)  # type: ignore[arg-type]

    def write(self, key, value, message, began):
        assert (message.sequence, began) == (4, BEGAN)
        self.records.append((key, json.loads(value)))
        return 1

    def take(self, content):
        return self.writer.write(Emitted(DDL_PREFIX, content, True, Lsn(900), 4), BEGAN)


def said(tag, kind, identity, *tables):
    raw = {"tag": tag, "kind": kind, "identity": identity, "tables": tables}
    return json.dumps({**raw, "query": None, "user": "me", "role": "owner"}).encode()


def test_a_command_on_a_schema_names_the_captured_tables_in_it():
    bench = Bench()
    assert bench.take(said("ALTER SCHEMA", "schema", "new", 1, 2, 3)) == 1
    ((key, document),) = bench.records
    assert (key, document["command"]) == (b"new", "ALTER SCHEMA")
    assert document["tables"] == [["old", "a"], ["old", "b"]]
    assert (document["query"], document["query_withheld"]) == (None, True)
    assert (document["user"], document["role"]) == ("me", "owner")


def test_a_dropped_table_is_named_and_one_that_is_not_captured_is_not():
    bench = Bench()
    assert bench.take(said("DROP TABLE", "table", "old.a", 1)) == 1
    assert bench.take(said("DROP TABLE", "table", "old.c", 3)) == 0
    assert [document["tables"] for _, document in bench.records] == [[["old", "a"]]]
