"""Tables that appear while capture runs are taken, with their rows; what is not is named."""

import shlex

import pytest
from psycopg2.extensions import make_dsn

from tests.integration.test_incompatible import Capture
from tests.support.beginnings import alter
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.services

DEADLINE_S = 120.0
COLUMNS = "(id integer PRIMARY KEY, text text)"


server = server_of(first(1, [18, 15]))
capture = capture_of(Capture, f"CREATE TABLE kept {COLUMNS}", "INSERT INTO kept VALUES (1, 'x')")


def spoken(capture):
    """The names of the tables that the last frontier speaks of."""
    found = capture.frontier()
    return {table.table for table in found.tables.values()} if found is not None else set()


def wait_for(capture, *tables, deadline_s=DEADLINE_S):
    def ready():
        assert capture.running.poll() is None, capture.said()
        return spoken(capture) == {*tables}

    wait_until(ready, deadline_s, f"{tables} are captured, and no others")


def equal(capture, *tables):
    """Tell whether the log has the rows of the tables as the source has them."""
    capture.settle()
    found = {
        table: {key: row["text"] for (key,), row in capture.rows(table).items()} for table in tables
    }
    return found == {
        table: dict(capture.query(f"SELECT id, text FROM {table}")) for table in tables
    }


def keys(capture, table):
    """The keys of a table's rows at the last frontier; none while that does not speak of it."""
    found, topic = capture.frontier(), f"{capture.prefix}.{table}"
    if topic not in found.tables:
        return set()
    return {key for (key,) in capture.reader.read(found, topic).rows}


BEFORE = (
    "CREATE SCHEMA aside",
    f"CREATE TABLE aside.moved {COLUMNS}",
    f"CREATE TABLE hidden_yet {COLUMNS}",
    f"CREATE UNLOGGED TABLE unlogged {COLUMNS}",
    "CREATE TABLE root (id integer PRIMARY KEY, text text) PARTITION BY RANGE (id)",
    "CREATE TABLE part PARTITION OF root FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE rest PARTITION OF root DEFAULT",
    f"CREATE TABLE joins {COLUMNS}",
    f"CREATE TABLE old_name {COLUMNS}",
    f"CREATE TABLE again {COLUMNS}",
    f"CREATE TABLE leaves {COLUMNS}",
)
CHANGES = (
    f"CREATE TABLE created {COLUMNS}",
    "ALTER TABLE aside.moved SET SCHEMA public",
    "ALTER TABLE hidden_yet RENAME TO renamed",
    "ALTER TABLE unlogged SET LOGGED",
    "ALTER TABLE root DETACH PARTITION part",
    "ALTER TABLE old_name RENAME TO new_name",
    f"DROP TABLE again; CREATE TABLE again {COLUMNS}",
    "ALTER TABLE root ATTACH PARTITION joins FOR VALUES FROM (1000) TO (2000)",
    "ALTER TABLE leaves SET SCHEMA aside",
    "CREATE TABLE excluded_by_name (id integer PRIMARY KEY)",
)
AFTER = ("kept", "created", "moved", "renamed", "unlogged", "root", "part", "new_name", "again")


def prepare(capture):
    capture.set(exclude=["hidden_*", "excluded_*"], on_incompatible="resnapshot")
    capture.sql(*BEFORE)
    for number, table in enumerate(
        ["aside.moved", "hidden_yet", "unlogged", "root", "joins", "old_name", "again", "leaves"]
    ):
        start = 1000 if table == "joins" else 10 * number
        capture.sql(
            f"INSERT INTO {table} SELECT n, 'old' FROM generate_series({start}, {start} + 5) n"
        )


def test_each_way_in_which_a_table_appears_or_goes(capture):
    prepare(capture)
    capture.begin()
    wait_for(capture, "kept", "root", "joins", "old_name", "again", "leaves")
    capture.sql(*CHANGES, "INSERT INTO again VALUES (7, 'new')")
    for table in AFTER:
        capture.sql(f"INSERT INTO {table} VALUES (77, 'at once')")
    wait_for(capture, *AFTER)
    for table in AFTER:
        capture.sql(f"UPDATE {table} SET text = 'later' WHERE id % 2 = 1")
        capture.sql(f"DELETE FROM {table} WHERE id % 5 = 0")
    assert equal(capture, *AFTER)


def test_twin_without_a_look_at_the_tables_they_are_missed(capture):
    capture.begin(defect="forget_newcomers")
    wait_for(capture, "kept")
    capture.sql(f"CREATE TABLE created {COLUMNS}", "INSERT INTO kept VALUES (2, 'y')")
    capture.settle()
    with pytest.raises(AssertionError, match="not within"):
        wait_for(capture, "kept", "created", deadline_s=3)


def status(capture):
    (found,) = capture.command("status", "--json", codes={0, 1})
    return found


@pytest.mark.matrix
def test_what_cannot_be_captured_is_named_until_it_can_be(capture):
    capture.begin()
    wait_for(capture, "kept")
    capture.sql("CREATE TABLE bare (id integer, text text)", f"CREATE TABLE good {COLUMNS}")
    capture.sql("INSERT INTO bare VALUES (1, 'x'), (2, 'y')")
    wait_for(capture, "kept", "good")
    why = wait_until(lambda: status(capture)["aside"], DEADLINE_S, "the table is excluded")
    assert why == {"public.bare": "has no primary key"}
    found = status(capture)
    assert found["not_captured"] == {"public.bare": "it has no primary key"}
    assert any(
        '"public.bare" is excluded: has no primary key' in each for each in found["problems"]
    )
    assert (
        'table "public.bare" matches and is not captured: it has no primary key' in capture.said()
    )
    capture.sql("ALTER TABLE bare ADD PRIMARY KEY (id)")
    wait_for(capture, "kept", "good", "bare")
    assert equal(capture, "kept", "good", "bare")
    assert status(capture)["not_captured"] == {}


@pytest.fixture
def humble(capture, server, prefix):
    """Capture as a role that owns the database and nothing of others."""
    role = f"{prefix}_role"
    capture.sql(
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'pw'",
        f"GRANT CREATE ON DATABASE {prefix} TO {role}",
        f"GRANT ALL ON SCHEMA public TO {role}",
        f"ALTER TABLE kept OWNER TO {role}",
    )
    path = capture.folder / "changelog.toml"
    theirs = make_dsn(capture.dsn, user=role, password="pw")
    lines = [
        f'dsn = "{theirs}"' if line.startswith("dsn =") else line
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    yield role
    capture.kill()


@pytest.mark.matrix
def test_a_table_that_the_role_may_not_publish_is_named_until_it_may(capture, humble):
    capture.begin()
    wait_for(capture, "kept")
    capture.sql(f"CREATE TABLE foreign_one {COLUMNS}", "INSERT INTO foreign_one VALUES (1, 'x')")
    why = wait_until(lambda: status(capture)["aside"], DEADLINE_S, "the table is excluded")
    assert why == {"public.foreign_one": "belongs to another role: its owner alone may publish it"}
    assert capture.running.poll() is None
    capture.sql(f"ALTER TABLE foreign_one OWNER TO {humble}")
    wait_for(capture, "kept", "foreign_one")
    assert equal(capture, "kept", "foreign_one")


@pytest.mark.parametrize("everything", [True, False], ids=["all_tables", "named"])
@pytest.mark.matrix
def test_a_publication_of_others_decides_by_what_it_sends(capture, everything):
    which = "ALL TABLES" if everything else "TABLE kept"
    capture.sql(f"CREATE PUBLICATION theirs FOR {which} WITH (publish_via_partition_root)")
    capture.set(publication="theirs", create_publication=False)
    capture.begin()
    wait_for(capture, "kept")
    capture.sql(f"CREATE TABLE created {COLUMNS}", "INSERT INTO created VALUES (1, 'x')")
    if not everything:
        why = wait_until(lambda: status(capture)["aside"], DEADLINE_S, "the table is excluded")
        assert why == {"public.created": 'is not sent by the publication "theirs"'}
        capture.sql("ALTER PUBLICATION theirs ADD TABLE created")
    wait_for(capture, "kept", "created")
    capture.sql("DROP TABLE created", f"CREATE TABLE created {COLUMNS}")
    capture.sql("INSERT INTO created VALUES (2, 'another')")
    if not everything:
        capture.sql("ALTER PUBLICATION theirs ADD TABLE created")
    wait_until(lambda: keys(capture, "created") == {2}, DEADLINE_S, "it is the new table")
    assert equal(capture, "kept", "created")
    capture.end()
    capture.set(on_incompatible="resnapshot")
    capture.sql("DROP TABLE created", f"CREATE TABLE created {COLUMNS}")
    capture.sql("INSERT INTO created VALUES (3, 'made while capture was down')")
    if not everything:
        capture.sql("ALTER PUBLICATION theirs ADD TABLE created")
    capture.finish()
    capture.begin()
    wait_for(capture, "kept", "created")
    assert equal(capture, "kept", "created")


@pytest.mark.matrix
def test_of_new_tables_the_one_that_no_start_takes_is_excluded_and_no_other(capture):
    # Two are called `a_b` on the log.
    capture.sql(f'CREATE TABLE "a.b" {COLUMNS}', "CREATE SCHEMA a")
    capture.set(tables=["public.*", "a.*"])
    capture.begin()
    wait_for(capture, "kept", "a.b")
    capture.sql(f"CREATE TABLE a.b {COLUMNS}; CREATE TABLE innocent {COLUMNS}")
    capture.sql("INSERT INTO innocent VALUES (1, 'taken')")
    wait_for(capture, "kept", "a.b", "innocent")
    assert equal(capture, "kept", "innocent")
    goes_on_after_a_start(capture, "kept", "innocent")
    found = status(capture)
    assert "share" in found["aside"].get("a.b", "")
    assert found["not_captured"]["a.b"] == f"it is excluded: {found['aside']['a.b']}"
    (problem,) = found["problems"]
    _, command, _ = problem.split("`")
    code, _, said = capture.run_other(*shlex.split(command)[1:])
    assert code == 0, said
    capture.sql("INSERT INTO kept VALUES (10, 'goes on')")
    assert equal(capture, "kept", "innocent")
    capture.end()
    capture.sql("DROP TABLE a.b")
    assert status(capture)["aside"] == {}


def goes_on_after_a_start(capture, *tables):
    """What did not end the capture that runs does not keep the next one from starting."""
    assert capture.running.poll() is None, capture.said()
    capture.end()
    capture.sql("INSERT INTO kept VALUES (9, 'goes on')")
    capture.finish()
    capture.begin()
    assert equal(capture, *tables)


@pytest.mark.matrix
def test_a_copy_of_an_excluded_table_that_is_asked_for_holds_up_nobody(capture):
    """It is looked at once more for that, and the others go on when it is as it was."""
    capture.sql("CREATE TABLE other (id integer PRIMARY KEY, text text)")
    capture.begin()
    wait_for(capture, "kept", "other")
    capture.sql("CREATE TABLE bare (id integer, text text)")
    excluded = lambda: "public.bare" in status(capture)["aside"]  # noqa: E731
    wait_until(excluded, DEADLINE_S, "the table is excluded")
    code, _, said = capture.run_other("resnapshot", "public.bare", "public.other")
    assert code == 0, said
    capture.sql("INSERT INTO kept VALUES (2, 'goes on')")
    assert equal(capture, "kept", "other")
    assert 'table "public.bare" is not copied, though it was asked for' in capture.said()
    reports = capture.command("verify", "--json", codes={4})[0]["tables"]
    found = {each["table"]: each["verified"] for each in reports}
    assert found == {"public.kept": True, "public.other": True, "public.bare": None}
    goes_on_after_a_start(capture, "kept", "other")


def drop_key(capture):
    capture.sql("ALTER TABLE other DROP CONSTRAINT other_pkey")
    return "has no primary key"


def drop_table(capture):
    capture.sql("DROP TABLE other")
    return "is not there"


def drop_masked_column(capture):
    capture.sql("ALTER TABLE other DROP COLUMN more")
    return ""


def drop_masked_table(capture):
    capture.sql("DROP TABLE masked")
    return ""


def alter_topic(capture):
    alter(capture.kafka, f"{capture.prefix}.other", cleanup_policy="delete")
    return "cleanup.policy is delete, must be compact"


CHANGES_OF_OTHERS = [drop_key, drop_table, drop_masked_column, drop_masked_table, alter_topic]


@pytest.mark.matrix
@pytest.mark.parametrize("change", first(1, CHANGES_OF_OTHERS))
def test_what_a_running_capture_bears_does_not_stop_the_next_start(capture, change, monkeypatch):
    monkeypatch.setenv("CHANGELOG_MASK_KEY", "k" * 32)
    capture.sql("CREATE TABLE other (id integer PRIMARY KEY, text text, more text)")
    named = ["public.other"] if change is drop_table else ["public.*"]
    if change is drop_masked_table:
        capture.sql("CREATE TABLE masked (id integer PRIMARY KEY, more text)")
    capture.set(tables=["public.kept", *named])
    if change in {drop_masked_column, drop_masked_table}:
        table = "other" if change is drop_masked_column else "masked"
        path = capture.folder / "changelog.toml"
        masks = f'[capture.mask]\n"public.{table}.more" = "hash"\n'
        path.write_text(path.read_text() + masks)
    capture.begin()
    wait_until(lambda: "kept" in spoken(capture), DEADLINE_S, "the tables are captured")
    said = change(capture)
    capture.sql("INSERT INTO kept VALUES (2, 'while it runs')")
    capture.settle()
    if change is drop_key:  # told before a row shows it
        assert f'"public.other" {said}: no frontier' in " ".join(status(capture)["problems"])
    goes_on_after_a_start(capture, "kept")
    assert said in " ".join(status(capture)["problems"])


@pytest.mark.matrix
def test_a_mask_that_names_no_column_is_still_refused(capture, monkeypatch):
    """The twin of the above: a column that was never there is a slip of the pen."""
    monkeypatch.setenv("CHANGELOG_MASK_KEY", "k" * 32)
    capture.finish()
    path = capture.folder / "changelog.toml"
    path.write_text(path.read_text() + '[capture.mask]\n"public.kept.txet" = "hash"\n')
    code, said = capture.attempt()
    assert code != 0
    assert 'no captured table has a column "public.kept.txet"' in said


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["progress written:1", "chunk copied:1", "frontier written:2"])
def test_a_crash_while_a_new_table_is_taken_loses_nothing(capture, point):
    capture.finish()
    capture.sql(f"CREATE TABLE created {COLUMNS}")
    capture.sql("INSERT INTO created SELECT n, 'x' FROM generate_series(1, 2000) n")
    capture.crash(point, small=True)
    capture.sql("DELETE FROM created WHERE id % 2 = 0")
    capture.finish()
    capture.begin()
    wait_for(capture, "kept", "created")
    assert equal(capture, "kept", "created")
