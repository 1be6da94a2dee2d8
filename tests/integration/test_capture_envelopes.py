"""`--envelope nested|flat`, Avro and JSON, read as a reader of Debezium's events would."""

from contextlib import closing

import pytest

from changelog.contract.base.headers import decode_headers
from changelog.sink.registry import SchemaRegistry
from tests.support.capture_command import CrashingCapture, capture_with
from tests.support.documents import parsed
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

ENVELOPES = ("nested", "flat", "labelled")
FORMS = [(output, envelope) for output in ("avro", "json") for envelope in ENVELOPES]


class Capture(CrashingCapture):
    form = ("avro", "nested")

    def set_form(self, output, envelope):
        self.form = (output, envelope)
        path = self.folder / "changelog.toml"
        path.write_text(path.read_text() + f'output_format = "{output}"\nenvelope = "{envelope}"\n')

    def records(self, table):
        """Return key, value and headers of each record up to the frontier."""
        topic, frontier = f"{self.prefix}.{table}", self.frontier()
        read = parsed if self.form[0] == "json" else self.reader.decode
        return [
            (read(message.key()), read(message.value()), decode_headers(message.headers()))
            for message in self.reader.messages(topic, frontier.ends[topic])
        ]

    def sides(self, value):
        """Return operation, old and new row of an event."""
        if self.form[1] == "nested":
            return value["op"], value["before"], value["after"]
        if self.form[1] == "labelled":
            assert (value["__schema"], value["__deleted"]) == ("public", value["__op"] == "d")
            return value["__op"], value, value
        before = {k.removeprefix("before_"): v for k, v in value.items() if k.startswith("before_")}
        after = {k.removeprefix("after_"): v for k, v in value.items() if k.startswith("after_")}
        return value["op"], before, after

    def rows(self, table):
        """Fold as those do who pass over tombstones: `d` names the key, all else has a row."""
        found: dict[int, str] = {}
        for _, value, _ in sorted(self.records(table), key=lambda each: each[2].position):
            if value is None:
                continue
            op, before, after = self.sides(value)
            if op == "d":
                del found[before["id"]]
            else:
                found[after["id"]] = after["text"]
        return found

    def kept(self, table):
        """Return the keys that the cleaner would keep: the last record of each has a value."""
        last = {}
        for key, value, headers in sorted(self.records(table), key=lambda each: each[2].position):
            last[key["id"]] = (value, headers)
        return {key for key, (value, _) in last.items() if value is not None}

    def check(self, table="notes"):
        rows = dict(self.query(f"SELECT id, text FROM {table}"))
        assert self.rows(table) == rows
        assert self.kept(table) == set(rows)
        positions = [headers.position for _, _, headers in self.records(table)]
        assert len(set(positions)) == len(positions)


capture = capture_with(
    Capture,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text, n integer)",
    "ALTER TABLE notes ALTER text SET STORAGE EXTERNAL",
    "CREATE TABLE in_full (id integer PRIMARY KEY, text text, n integer)",
    "ALTER TABLE in_full REPLICA IDENTITY FULL",
    "INSERT INTO notes SELECT n, E'row\\t' || n, NULL FROM generate_series(1, 300) n",
    "INSERT INTO in_full SELECT * FROM notes",
    "UPDATE notes SET text = repeat('long', 3000) WHERE id = 7",
)


CHANGES = tuple(
    statement.format(table)
    for table in ("notes", "in_full")
    for statement in (
        "UPDATE {0} SET n = id WHERE id < 150",  # one run; the long text is left out
        "UPDATE {0} SET id = id + 1000 WHERE id BETWEEN 5 AND 15",
        "DELETE FROM {0} WHERE id BETWEEN 20 AND 30",
        "INSERT INTO {0} VALUES (20, 'again', 1)",
    )
)


@pytest.mark.parametrize(("output", "envelope"), first(1, FORMS))
def test_events_fold_to_the_table_for_all_sorts_of_readers(capture, registry, output, envelope):
    capture.set_form(output, envelope)
    capture.catch_up()
    capture.check()
    capture.sql(*CHANGES)
    capture.catch_up()
    capture.check()
    capture.check("in_full")
    updates = [
        capture.sides(value)
        for _, value, _ in capture.records("in_full")
        if value is not None and capture.sides(value)[0] == "u"
    ]
    if output == "avro":
        with closing(SchemaRegistry(registry)) as schemas:
            found = [schemas.values(f"{capture.prefix}.{name}") for name in ("notes", "in_full")]
        assert [len(versions) for versions in found] == [1, 1], "a start alone makes no version"
    assert len(updates) == 149
    assert all(after["n"] == after["id"] for _, _, after in updates)
    if envelope != "labelled":  # which has no old row
        assert {before["n"] for _, before, _ in updates} == {None}


@pytest.mark.matrix
def test_an_event_says_where_it_comes_from(capture):
    capture.set_form("json", "nested")
    capture.catch_up()
    capture.sql("UPDATE notes SET n = 5 WHERE id = 1")
    capture.catch_up()
    ((value, headers),) = [
        (value, headers)
        for _, value, headers in capture.records("notes")
        if value is not None and value["op"] == "u"
    ]
    assert {"before", "after", "op"} <= set(value)
    assert value["before"] is None
    assert value["after"] == {"id": 1, "text": "row\t1", "n": 5}
    source = value["source"]
    assert (source["connector"], source["name"]) == ("postgresql", capture.prefix)
    assert (source["schema"], source["table"]) == ("public", "notes")
    assert source["db"] == f"db_{capture.prefix}"
    assert source["lsn"] == headers.position.commit_lsn
    assert source["ts_us"] == headers.ts_us
    assert source["ts_ms"] <= value["ts_ms"]
    ((xid,),) = capture.query("SELECT xmin::text::bigint FROM notes WHERE id = 1")
    assert source["txId"] == xid
    read = [value for _, value, _ in capture.records("notes") if value and value["op"] == "r"]
    assert {(each["source"]["snapshot"], each["source"]["txId"]) for each in read} == {
        ("true", None)
    }


@pytest.mark.matrix
def test_masked_and_dropped_columns_are_so_on_both_sides(capture):
    capture.set_form("json", "nested")
    options = ("--mask", "public.*.text=redact", "--columns", "in_full.n")
    capture.catch_up(*options)
    capture.sql("UPDATE in_full SET text = 'secret' WHERE id = 1", "DELETE FROM in_full")
    capture.catch_up(*options)
    seen = [capture.sides(value) for _, value, _ in capture.records("in_full") if value is not None]
    assert len(seen) == 601
    for _, *sides in seen:
        assert all(side is None or set(side) == {"id", "text"} for side in sides)
        assert all(side is None or side["text"] == "***" for side in sides)


@pytest.mark.matrix
@pytest.mark.parametrize("times", first(1, [153, 151, 152, 154]))
def test_a_crash_between_a_delete_its_tombstone_and_the_new_row_loses_none(capture, times):
    capture.set_form("json", "nested")
    capture.finish()
    capture.sql(*CHANGES)
    capture.crash(f"record produced:{times}", defect="deliver_each")
    capture.finish()
    capture.check()
    capture.check("in_full")


@pytest.mark.matrix
def test_a_table_without_a_key_has_one_event_a_change(capture):
    capture.set_form("avro", "nested")
    capture.sql(
        "CREATE TABLE events (n integer)",
        "ALTER TABLE events REPLICA IDENTITY FULL",
        "INSERT INTO events VALUES (1)",
    )
    capture.catch_up("--allow-unkeyed")
    capture.sql("UPDATE events SET n = 2", "DELETE FROM events", "TRUNCATE events")
    capture.catch_up("--allow-unkeyed")
    found = sorted(capture.records("events"), key=lambda each: each[2].position)
    assert [(key, *capture.sides(value)) for key, value, _ in found] == [
        (None, "r", None, {"n": 1}),
        (None, "u", {"n": 1}, {"n": 2}),
        (None, "d", {"n": 2}, None),
        (None, "t", None, None),
    ]


@pytest.mark.matrix
def test_a_topic_keeps_its_envelope_and_is_verified(capture):
    capture.set_form("avro", "flat")
    capture.catch_up()
    code, _, said = capture.run("--until", "now", "--envelope", "nested")
    assert code == 2
    assert f'topic "{capture.prefix}.notes" holds Avro in the flat envelope' in said
    assert "would give Avro in the nested envelope" in said
    # A change of columns is a new version of the envelope's schema.
    capture.sql("ALTER TABLE notes ADD more text", "INSERT INTO notes VALUES (900, 'x', 1, 'more')")
    capture.catch_up()
    added = [value for key, value, _ in capture.records("notes") if key["id"] == 900]
    assert [value["after_more"] for value in added] == ["more"]
    (line,) = capture.command("verify", "--json")
    assert [table["verified"] for table in line["tables"]] == [True, True]


FULL = ("--replica-identity", "full")


def identities(capture):
    return dict(
        capture.query(
            "SELECT relname, relreplident::text FROM pg_class JOIN pg_namespace n "
            "ON n.oid = relnamespace WHERE nspname = 'public' AND relkind IN ('r', 'p')"
        )
    )


@pytest.mark.matrix
def test_replica_identity_full_is_given_only_when_somebody_has_said_yes(capture):
    capture.set_form("json", "nested")
    capture.sql(
        "CREATE TABLE parts (id integer PRIMARY KEY, text text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE other (id integer PRIMARY KEY)",
    )
    before = identities(capture)
    code, _, said = capture.run("--until", "now", "--exclude", "other", *FULL)
    assert code == 2
    names = '"public.low", "public.notes", "public.parts"'
    assert f"was requested for {names}, but nobody agreed" in said
    assert "--yes does not ask" in said
    assert (identities(capture), capture.query("SELECT pubname FROM pg_publication")) == (
        before,
        [],
    )
    capture.catch_up("--exclude", "other", *FULL, "--yes")
    assert identities(capture) == {
        **dict.fromkeys(("in_full", "low", "notes", "parts"), "f"),
        "other": "d",
    }
    capture.sql("UPDATE notes SET n = 5 WHERE id = 7")
    capture.catch_up("--exclude", "other", *FULL)  # nothing is left to ask for
    ((before_row, after_row),) = [
        (value["before"], value["after"])
        for _, value, _ in capture.records("notes")
        if value is not None and value["op"] == "u"
    ]
    assert before_row == {**after_row, "n": None}
    code, _, said = capture.run("--until", "now", "--replica-identity", "nothing")
    assert (code, "capture.replica_identity" in said) == (2, True)
