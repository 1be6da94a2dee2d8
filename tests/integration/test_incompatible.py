"""Tables that the log cannot go on with: stopped by name, copied anew, or excluded."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest

from tests.support.capture_command import CrashingCapture, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 500


class Capture(CrashingCapture):
    """A capture whose settings are added to, and whose rows are compared whole."""

    def set(self, **settings):
        path = self.folder / "changelog.toml"
        more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        path.write_text(path.read_text() + more)

    def differing(self, table, *, only=False, key=("id",)):
        """Return the keys of rows that differ between the table and the fold of its topic."""
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {'ONLY' if only else ''} {table}")
            names = [column.name for column in cursor.description or ()]
            at = [names.index(name) for name in key]
            rows = {
                tuple(row[place] for place in at): dict(zip(names, row, strict=True))
                for row in cursor
            }
        folded = self.reader.folded(self.frontier(), f"{self.prefix}.{table}")
        return sorted(k for k in {*rows, *folded} if rows.get(k) != folded.get(k))

    def end(self):
        """End the process in the background, with a frontier."""
        assert self.running is not None
        self.running.terminate()
        self.running.communicate(timeout=60)
        self.running = None

    def excluded(self):
        return {str(table): why for table, why in self.frontier().excluded.items()}


capture = capture_with(
    Capture,
    "CREATE TABLE notes (id integer PRIMARY KEY, text text, number integer)",
    f"INSERT INTO notes SELECT n, 'row ' || n, n FROM generate_series(1, {ROWS}) n",
    "CREATE TABLE other (id integer PRIMARY KEY, text text)",
    "INSERT INTO other SELECT n, 'row ' || n FROM generate_series(1, 50) n",
    "ANALYZE notes",
)


CHANGE = (
    "ALTER TABLE notes RENAME number TO amount",
    "DELETE FROM notes WHERE id <= 10",
    "UPDATE notes SET amount = -1 WHERE id BETWEEN 11 AND 20",
    "UPDATE other SET text = 'after' WHERE id = 1",
)


@pytest.mark.matrix
def test_an_incompatible_change_stops_with_column_subject_and_the_way_out(capture):
    capture.finish()
    capture.sql(*CHANGE)
    code, said = capture.attempt()
    assert code == 1
    for part in ('table "public.notes"', f'"{capture.prefix}.notes-value"', "['amount']"):
        assert part in said
    assert "`--on-incompatible resnapshot`" in said
    # The way out is true.
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    assert (capture.differing("notes"), capture.differing("other")) == ([], [])
    assert capture.excluded() == {}


@pytest.mark.matrix
def test_twin_versions_that_are_not_compared_read_wrong(capture):
    capture.finish()
    capture.sql(*CHANGE)
    capture.finish(defect="forget_to_compare")
    assert capture.differing("notes")


ANOTHER = (
    "DROP TABLE other",
    "CREATE TABLE other (id integer PRIMARY KEY, text text)",
    "INSERT INTO other VALUES (2, 'of another table')",
)


@pytest.fixture
def everything(capture):
    """Capture by a publication of all tables, which has also those that are made later."""
    capture.sql("CREATE PUBLICATION theirs FOR ALL TABLES WITH (publish_via_partition_root = true)")
    capture.set(publication="theirs")
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + "create_publication = false\n")
    return capture


@pytest.mark.matrix
def test_a_table_that_takes_the_name_of_another_is_noticed(everything):
    everything.finish()
    everything.sql(*ANOTHER)
    code, said = everything.attempt()
    assert code == 1
    assert 'table "public.other"' in said
    assert "another table has its name now" in said
    everything.set(on_incompatible="resnapshot")
    everything.finish()
    assert everything.differing("other") == []


@pytest.mark.matrix
def test_twin_another_table_is_taken_for_the_one_before(everything):
    everything.finish()
    everything.sql(*ANOTHER)
    everything.finish(defect="forget_to_look")
    assert everything.differing("other")


POINTS = (
    "table excluded",
    "progress written:1",
    "frontier written:1",
    "fence taken",
    "segment written",
    "progress written:3",
    "table whole",
)


@pytest.mark.matrix
def test_a_kill_at_any_point_of_a_fresh_copy_is_survived(capture):
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    sinces = set()
    for number, point in enumerate(POINTS):
        names = ("number", "amount") if number % 2 == 0 else ("amount", "number")
        capture.sql(
            f"ALTER TABLE notes RENAME {names[0]} TO {names[1]}",
            f"DELETE FROM notes WHERE id = {number}",
            f"UPDATE notes SET {names[1]} = -{number} WHERE id % 7 = 0",
            f"INSERT INTO notes VALUES (1000 + {number}, 'new', 1)",
        )
        capture.crash(point, small=True)
        capture.sql("UPDATE notes SET text = 'again' WHERE id % 11 = 0")
        capture.finish(small=True)
        assert capture.differing("notes") == [], point
        assert capture.excluded() == {}
        sinces.add(capture.frontier().since[f"{capture.prefix}.notes"])
    # Tombstones of dead keys stand at the `since` of their copy.
    assert {at for *_, at in capture.log("notes").regressions} <= sinces


# --- excluded tables ---------------------------------------------------------------------------

LARGE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 60000))"
BAD = {
    "keyless": ("ALTER TABLE keyless DROP CONSTRAINT keyless_pkey", "primary key"),
    "retyped": ("ALTER TABLE retyped ALTER text TYPE integer USING 1", "columns ['text']"),
    "large": (f"UPDATE large SET text = {LARGE} WHERE id = 7", "does not take a record"),
}
MENDED = (
    "DELETE FROM keyless a USING keyless b WHERE a.id = b.id AND a.ctid > b.ctid",
    "ALTER TABLE keyless ADD PRIMARY KEY (id)",
    "UPDATE large SET text = 'small' WHERE id = 7",
)


@pytest.fixture
def bad(capture):
    """Several tables that go bad, each in another way, while another one is well."""
    for table in BAD:
        capture.sql(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, text text)",
            f"INSERT INTO {table} SELECT n, 'row ' || n FROM generate_series(1, 50) n",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL",
        )
    capture.finish()
    return capture


def spoil(capture):
    for change, _ in BAD.values():
        capture.sql(change)
    for table in ("keyless", "retyped", "large", "other"):
        value = "2" if table == "retyped" else "'x'"
        capture.sql(
            f"UPDATE {table} SET text = {value} WHERE id = 3",
            f"DELETE FROM {table} WHERE id = 4",
            f"INSERT INTO {table} VALUES (100, {value})",
        )


def test_tables_that_go_bad_are_excluded_and_named_and_taken_back(bad):
    bad.set(on_error="log")
    spoil(bad)
    bad.crash("table excluded")
    bad.crash("progress written:2")
    bad.finish()
    excluded = bad.excluded()
    assert {f"public.{table}" for table in BAD} == {*excluded}
    for table, (_, why) in BAD.items():
        assert why in excluded[f"public.{table}"]
        assert bad.frontier().topic_of(("public", table)) is None
    assert bad.differing("other") == bad.differing("notes") == []
    # A restart neither forgets it nor copies anything.
    before = bad.frontier().ends
    bad.sql("UPDATE other SET text = 'later' WHERE id = 9", "INSERT INTO retyped VALUES (101, 5)")
    bad.finish()
    assert set(bad.excluded()) == set(excluded)
    assert sum(bad.frontier().ends[f"{bad.prefix}.other"]) == 1 + sum(before[f"{bad.prefix}.other"])
    assert bad.differing("other") == []
    (status,) = bad.command("status", "--json", "--allow-inactive", codes={1})
    assert set(status["aside"]) == set(excluded)
    assert any("`changelog resnapshot public.large`" in each for each in status["problems"])
    (said,) = bad.command("verify", "retyped", "--json", codes={1, 2})
    assert "is excluded" in said["error"]
    # A copy that is asked for before the fault is mended finds it once more.
    bad.command("resnapshot", "large", "--json")
    bad.finish()
    assert "public.large" in bad.excluded()
    bad.sql(*MENDED)
    bad.command("resnapshot", *BAD, "--json")
    bad.finish()
    assert bad.excluded() == {}
    assert {table: bad.differing(table) for table in BAD} == {table: [] for table in BAD}


@pytest.mark.matrix
def test_whoever_waits_for_a_copy_hears_that_there_is_none(bad):
    bad.set(on_error="log")
    bad.sql(BAD["large"][0])
    bad.finish()
    bad.start()
    code, _, said = bad.run_other("resnapshot", "large", "--wait")
    assert code == 1, said
    assert 'the table "public.large" is not copied: it is excluded: ' in said
    assert "does not take a record" in said
    # Nor is one that is gone when capture meets the request.
    bad.end()
    bad.sql("DROP TABLE keyless")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bad.run_other, "resnapshot", "keyless", "--wait")
        bad.start()
        code, _, said = waiting.result()
    assert (code, 'the table "public.keyless" is not copied: it is not captured' in said) == (
        1,
        True,
    )


@pytest.mark.matrix
def test_a_bad_table_stops_capture_by_default_and_says_what_else_can_be_done(bad):
    bad.sql(BAD["large"][0])
    code, said = bad.attempt()
    assert code == 1
    assert f'topic "{bad.prefix}.large" does not take a record' in said
    assert "`--on-error log`" in said


@pytest.mark.matrix
def test_twin_rows_that_are_left_out_in_silence_are_missed(bad):
    bad.sql(BAD["retyped"][0], "UPDATE retyped SET text = 2 WHERE id = 3")
    bad.finish(defect="skip_bad_rows")
    assert bad.excluded() == {}
    assert bad.differing("retyped")
