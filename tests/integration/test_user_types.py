"""Types that users make, altered: the log goes on, stops by name, or copies the table anew.

A stored value of such a type is shown by what the type says now, so ALTER TYPE changes rows of
which the stream has no word. The independent verifier compares the log with PostgreSQL.
"""

from contextlib import closing
from dataclasses import dataclass, replace

import pytest

from changelog.contract.log.topic import frontier_topic
from changelog.sink.frontier import FrontierLog
from changelog.source.connect.connect import connect
from changelog.source.tables.catalogue import Catalogue
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.integration.test_incompatible import Capture as IncompatibleCapture
from tests.support.capture_command import capture_with
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]


@dataclass(frozen=True)
class Case:
    """A table of an enum `{t}_m` or a composite type `{t}_c`, and what happens; `{t}` names it."""

    made: str
    row: str
    change: str


ENUM = "CREATE TYPE {t}_m AS ENUM ('sad', 'ok', 'glad');"
PAIR = "CREATE TYPE {t}_c AS (a integer, b text);"
RENAME = "ALTER TYPE {t}_m RENAME VALUE 'sad' TO 'blue'"
OF_ENUM = ENUM + "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_m)"
OF_PAIR = PAIR + "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_c)"
PLAIN = "CREATE TABLE {t} (id integer PRIMARY KEY, v text)"
ADDED = (
    "CREATE TYPE {t}_m AS ENUM ('sad', 'ok'); ALTER TABLE {t} ADD w {t}_m;"
    "INSERT INTO {t} VALUES (9, 'x', 'sad');"
)

SHOWN_OTHERWISE = {
    "renamed": Case(OF_ENUM, "'sad'", RENAME),
    "key": Case(
        ENUM + "CREATE TABLE {t} (id {t}_m PRIMARY KEY)",
        "",
        RENAME + "; UPDATE {t} SET id = 'glad' WHERE id = 'blue'; DELETE FROM {t} WHERE id = 'ok'",
    ),
    "key_of_domain": Case(
        ENUM + "CREATE DOMAIN {t}_d AS {t}_m CHECK (VALUE <> 'glad');"
        "CREATE TABLE {t} (id {t}_d PRIMARY KEY)",
        "",
        RENAME + "; DELETE FROM {t} WHERE id::text = 'blue'",
    ),
    "key_of_pair": Case(
        PAIR + "CREATE TABLE {t} (id {t}_c PRIMARY KEY)",
        "(1,x)",
        "ALTER TYPE {t}_c ADD ATTRIBUTE c integer; DELETE FROM {t}",
    ),
    "in_array": Case(
        ENUM + "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_m[])", "'{{sad,ok}}'", RENAME
    ),
    "in_pair": Case(
        ENUM + "CREATE TYPE {t}_c AS (n integer, m {t}_m[]);"
        "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_c[])",
        """ARRAY[ROW(1, '{{sad,ok}}')]::{t}_c[]""",
        RENAME,
    ),
    "in_range": Case(
        ENUM + "CREATE TYPE {t}_r AS RANGE (subtype = {t}_m, multirange_type_name = {t}_mr);"
        "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_mr)",
        "'{{[sad,ok)}}'",
        RENAME,
    ),
    "in_partition": Case(
        ENUM + "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_m) PARTITION BY RANGE (id);"
        "CREATE TABLE {t}_low PARTITION OF {t} DEFAULT",
        "'sad'",
        RENAME,
    ),
    "there_and_back": Case(
        OF_ENUM,
        "'sad'",
        RENAME + "; INSERT INTO {t} VALUES (9, 'blue');"
        "ALTER TYPE {t}_m RENAME VALUE 'blue' TO 'sad'",
    ),
    "swapped": Case(
        OF_ENUM,
        "'sad'",
        "ALTER TYPE {t}_m RENAME VALUE 'sad' TO 'x'; ALTER TYPE {t}_m RENAME VALUE 'ok' TO 'sad';"
        "ALTER TYPE {t}_m RENAME VALUE 'x' TO 'ok'",
    ),
    "attribute_added": Case(OF_PAIR, "'(1,x)'", "ALTER TYPE {t}_c ADD ATTRIBUTE c integer"),
    "attribute_dropped": Case(OF_PAIR, "'(1,x)'", "ALTER TYPE {t}_c DROP ATTRIBUTE a"),
    "attribute_added_and_dropped": Case(
        OF_PAIR,
        "'(1,x)'",
        "ALTER TYPE {t}_c ADD ATTRIBUTE c integer; INSERT INTO {t} VALUES (9, (1, 'x', 5));"
        "ALTER TYPE {t}_c DROP ATTRIBUTE c",
    ),
    "row_type": Case(
        "CREATE TABLE {t}_other (id integer PRIMARY KEY, n integer);"
        "CREATE TABLE {t} (id integer PRIMARY KEY, v {t}_other)",
        "'(1,2)'",
        "ALTER TABLE {t}_other ADD more text",
    ),
    "column_and_rename": Case(PLAIN, "'x'", ADDED + RENAME),
    "column_of_an_array_and_rename": Case(
        PLAIN,
        "'x'",
        "CREATE TYPE {t}_m AS ENUM ('sad', 'ok'); ALTER TABLE {t} ADD w {t}_m[];"
        "INSERT INTO {t} VALUES (9, 'x', '{{sad}}');" + RENAME,
    ),
    "column_and_rename_and_more": Case(
        PLAIN,
        "'x'",
        ADDED + RENAME + "; UPDATE {t} SET w = 'ok' WHERE w IS NULL;"
        "ALTER TABLE {t} ALTER w SET NOT NULL",
    ),
    "column_and_rename_at_once": Case(
        PLAIN, "'x'", "DO $$ BEGIN " + ADDED + RENAME + "; END $$; SELECT 1"
    ),
    "column_and_attribute": Case(
        PLAIN,
        "'x'",
        "CREATE TYPE {t}_c AS (a integer); ALTER TABLE {t} ADD w {t}_c;"
        "INSERT INTO {t} VALUES (9, 'x', ROW(1)); ALTER TYPE {t}_c ADD ATTRIBUTE b integer",
    ),
}
"""Changes after which PostgreSQL shows stored rows otherwise than the log has them."""

SHOWN_ALIKE = {
    "appended": Case(
        OF_ENUM, "'sad'", "ALTER TYPE {t}_m ADD VALUE 'mad'; INSERT INTO {t} VALUES (9, 'mad')"
    ),
    "put_between": Case(
        OF_ENUM,
        "'sad'",
        "ALTER TYPE {t}_m ADD VALUE 'mad' BEFORE 'sad';"
        "ALTER TYPE {t}_m ADD VALUE 'so so' AFTER 'sad';"
        "ALTER TYPE {t}_m ADD VALUE IF NOT EXISTS 'ok'; INSERT INTO {t} VALUES (9, 'so so')",
    ),
    "type_renamed": Case(
        OF_ENUM,
        "'sad'",
        "ALTER TYPE {t}_m RENAME TO {t}_n; CREATE SCHEMA IF NOT EXISTS aside;"
        "ALTER TYPE {t}_n SET SCHEMA aside; INSERT INTO {t} VALUES (9, 'ok')",
    ),
    "attribute_renamed": Case(
        OF_PAIR,
        "'(1,x)'",
        "ALTER TYPE {t}_c RENAME ATTRIBUTE a TO z; INSERT INTO {t} VALUES (9, (2, 'y'))",
    ),
    "of_domain": Case(
        "CREATE DOMAIN {t}_d AS integer; CREATE TABLE {t} (id {t}_d PRIMARY KEY, v {t}_d)",
        "7",
        "ALTER DOMAIN {t}_d ADD CONSTRAINT c CHECK (VALUE > 0) NOT VALID;"
        "ALTER DOMAIN {t}_d VALIDATE CONSTRAINT c; ALTER DOMAIN {t}_d SET NOT NULL;"
        "ALTER DOMAIN {t}_d SET DEFAULT 5; INSERT INTO {t} VALUES (9);"
        "ALTER DOMAIN {t}_d DROP CONSTRAINT c; ALTER DOMAIN {t}_d DROP DEFAULT",
    ),
    "collated": Case(
        PLAIN,
        "'x'",
        "ALTER TABLE {t} ALTER v TYPE text COLLATE \"C\"; INSERT INTO {t} VALUES (9, 'y')",
    ),
    "column_added": Case(OF_ENUM, "'sad'", "ALTER TABLE {t} ADD w {t}_m DEFAULT 'ok'"),
    "column_of_a_new_type": Case(PLAIN, "'x'", ADDED.rstrip(";")),
    "type_dropped": Case(
        OF_ENUM, "'sad'", "ALTER TABLE {t} DROP v; DROP TYPE {t}_m; INSERT INTO {t} VALUES (9)"
    ),
}
"""Changes that alter no stored row's text."""


class Capture(IncompatibleCapture):
    def make(self, cases):
        self.sql("CREATE TABLE well (id integer PRIMARY KEY)", "INSERT INTO well VALUES (1)")
        for table, case in cases.items():
            self.each(table, case.made)
            if not table.startswith("key"):
                self.each(
                    table, f"INSERT INTO {{t}} SELECT n, {case.row} FROM generate_series(1, 5) n"
                )
            elif case.row:
                self.each(table, f"INSERT INTO {{t}} VALUES ('{case.row}')")
            else:
                self.each(table, "INSERT INTO {t} VALUES ('sad'), ('ok')")

    def alter(self, cases):
        for table, case in cases.items():
            self.each(table, case.change)

    def each(self, table, text):
        text = text.format(t=table)
        self.sql(*([text] if "$$" in text else text.split(";")))

    def differing_tables(self):
        """Return the tables that the verifier finds to be other than on the log."""
        line, *_ = self.command("verify", "--json", codes={0, 3})
        return {each["view"].split(".")[-1] for each in line["tables"] if not each["verified"]}

    def copied_anew(self, before):
        """Return the tables that were copied anew after a frontier."""
        now = self.frontier().since
        return {topic.split(".")[-1] for topic in now if now[topic] != before.since[topic]}


capture = capture_with(Capture)


@pytest.fixture(scope="module", params=[15, 18])
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(f"pg{request.param}")
    settings = {"fsync": "off"}
    with PostgresServer(
        directory, pick(), version=request.param, settings=settings, password="pw"
    ) as made:
        yield made


@pytest.fixture
def versions(server, kafka, registry, prefix, tmp_path):
    server.create_database(prefix)
    dsn = server.database_dsn(prefix)
    made = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    yield made
    made.kill()


@pytest.mark.matrix
def test_a_renamed_label_of_a_key_stops_capture_and_a_copy_takes_the_old_key_away(capture):
    capture.make({"key": SHOWN_OTHERWISE["key"]})
    capture.finish()
    before = capture.frontier()
    capture.alter({"key": SHOWN_OTHERWISE["key"]})
    code, said = capture.attempt()
    assert code == 1
    for part in ('table "public.key"', 'label "sad" of type key_m is called "blue" now'):
        assert part in said
    assert "`--on-incompatible resnapshot`" in said
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    assert capture.rows("key") == {("glad",): {"id": "glad"}}
    assert capture.copied_anew(before) == {"key"}
    # What was seen is written down: the next start copies nothing.
    capture.sql("INSERT INTO key VALUES ('blue')")
    before = capture.frontier()
    capture.finish()
    assert capture.copied_anew(before) == set()
    assert capture.differing_tables() == set()


@pytest.mark.matrix
def test_what_an_earlier_version_has_seen_is_taken_over_without_a_copy(capture):
    cases = {table: SHOWN_OTHERWISE[table] for table in ("renamed", "attribute_added")}
    capture.make(cases)
    capture.set(on_incompatible="resnapshot")
    capture.finish()
    with FrontierLog(capture.kafka, frontier_topic(capture.prefix)) as frontiers:
        seen = frontiers.standings(capture.prefix)
        assert seen is not None
        tables = {topic: replace(each, types=None) for topic, each in seen.tables.items()}
        frontiers.write_standings(capture.prefix, replace(seen, tables=tables))
    before = capture.frontier()
    capture.sql("INSERT INTO well VALUES (2)")
    said = capture.finish()
    assert "since these tables were copied: public.attribute_added, public.renamed" in said
    assert capture.copied_anew(before) == set()
    # From now on they are watched, and nothing is said any more.
    capture.alter(cases)
    assert "since these tables were copied" not in capture.finish()
    assert capture.copied_anew(before) == {*cases}
    assert capture.differing_tables() == set()


HIDDEN = (
    "ALTER TYPE hidden_m ADD VALUE 'med'",
    "INSERT INTO hidden VALUES (9, 'med')",
    "ALTER TYPE hidden_m RENAME VALUE 'med' TO 'mad'",
)
BY_HAND = (
    "CREATE TABLE aside.hidden AS SELECT id, 'ok'::hidden_m AS v FROM hidden",
    (
        "UPDATE pg_class c SET relfilenode = o.relfilenode FROM pg_class o WHERE c.oid ="
        " 'hidden'::regclass AND o.oid = 'aside.hidden'::regclass"
    ),
)


@pytest.mark.matrix
@pytest.mark.parametrize("statements", [HIDDEN, BY_HAND])
def test_what_no_look_can_see_the_comparison_with_the_source_finds(versions, statements):
    versions.make({"hidden": SHOWN_OTHERWISE["renamed"]})
    versions.sql("CREATE SCHEMA aside")
    versions.finish()
    versions.sql("SET session_replication_role = replica", "INSERT INTO hidden VALUES (8, 'ok')")
    versions.finish()
    assert versions.differing_tables() == set()
    versions.sql(*statements)
    versions.finish()
    assert versions.differing_tables() == {"hidden"}
    versions.command("resnapshot", "hidden", "--json")
    versions.finish()
    assert versions.differing_tables() == set()


@pytest.mark.matrix
def test_text_that_follows_other_names_gets_a_warning_and_the_comparison_finds_it(versions):
    versions.sql(
        "CREATE VIEW looked AS SELECT 1",
        "CREATE TYPE named AS (n integer, r regclass[])",
        "CREATE TABLE names (id integer PRIMARY KEY, v named)",
        "INSERT INTO names VALUES (1, ROW(1, '{looked}'))",
    )
    warning = "columns ['public.names.v'] name other objects or roles"
    assert warning in versions.finish()
    _, out, _ = versions.run("--check", "--json")
    assert warning in out
    versions.sql("ALTER VIEW looked RENAME TO seen")
    versions.finish()
    assert versions.differing_tables() == {"names"}


@pytest.mark.matrix
def test_synchronous_standbys_get_a_warning(versions):
    set_to = "ALTER SYSTEM SET synchronous_standby_names = '{}'"
    with closing(connect(versions.dsn)) as connection:
        catalogue = Catalogue(connection)
        assert catalogue.unnoticed([]) == ()
        versions.sql(set_to.format("nobody"), "SELECT pg_reload_conf()")
        try:
            said = wait_until(lambda: catalogue.unnoticed([]), 30, "the setting is read")
            assert "may be noticed one frontier late" in said[0]
        finally:
            versions.sql(set_to.format(""), "SELECT pg_reload_conf()")
        wait_until(lambda: not catalogue.unnoticed([]), 30, "the setting is read")


@pytest.mark.matrix
def test_types_altered_while_capture_is_down_end_with_equal_rows(versions):
    cases = {**SHOWN_OTHERWISE, **SHOWN_ALIKE}
    versions.make(cases)
    versions.set(on_incompatible="resnapshot")
    versions.finish()
    before = versions.frontier()
    versions.alter(cases)
    versions.finish()
    assert versions.differing_tables() == set()
    assert versions.copied_anew(before) == {*SHOWN_OTHERWISE}


@pytest.mark.matrix
def test_types_altered_while_capture_runs_end_with_equal_rows(versions):
    cases = {**SHOWN_OTHERWISE, **SHOWN_ALIKE}
    versions.make(cases)
    versions.set(on_incompatible="resnapshot")
    versions.begin()
    before = versions.wait_for_frontier()
    versions.alter(cases)
    versions.settle()
    versions.end()
    versions.finish()
    assert versions.differing_tables() == set()
    assert versions.copied_anew(before) == {*SHOWN_OTHERWISE}


@pytest.mark.matrix
def test_twin_without_a_look_every_altered_type_reads_wrong(versions):
    versions.make(SHOWN_OTHERWISE)
    versions.finish()
    versions.alter(SHOWN_OTHERWISE)
    versions.finish(defect="forget_to_look")
    assert versions.differing_tables() == {*SHOWN_OTHERWISE}
