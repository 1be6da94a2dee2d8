"""Tables of other roles, and without rights: what one lacks takes no other table with it."""

import pytest
from psycopg2.extensions import make_dsn

from tests.integration.test_incompatible import Capture
from tests.integration.test_newcomers import COLUMNS, equal, spoken, status, wait_for
from tests.support.matrix import first
from tests.support.own_server import capture_of, server_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.services

DEADLINE_S = 120.0

server = server_of(first(1, [18, 15]))
capture = capture_of(
    Capture,
    f"CREATE TABLE kept {COLUMNS}",
    "INSERT INTO kept VALUES (1, 'x')",
    f"CREATE TABLE given_away {COLUMNS}",
    "INSERT INTO given_away VALUES (1, 'x')",
)


@pytest.fixture
def role(capture, prefix):
    """Capture as a role that owns two tables, and not what others make."""
    name = f"{prefix}_role"
    capture.sql(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'pw'",
        f"GRANT CREATE ON DATABASE {prefix} TO {name}",
        f"GRANT ALL ON SCHEMA public TO {name}",
        f"ALTER TABLE kept OWNER TO {name}",
        f"ALTER TABLE given_away OWNER TO {name}",
    )
    path = capture.folder / "changelog.toml"
    theirs = make_dsn(capture.dsn, user=name, password="pw")
    lines = [
        f'dsn = "{theirs}"' if line.startswith("dsn =") else line
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    return name


def make(capture, role, *tables):
    for table in tables:
        capture.sql(
            f"CREATE TABLE {table} {COLUMNS}",
            f"ALTER TABLE {table} OWNER TO {role}",
            f"INSERT INTO {table} VALUES (1, 'x')",
        )


@pytest.mark.matrix
@pytest.mark.parametrize("running", first(1, [True, False]), ids=["running", "stopped"])
def test_a_published_table_of_another_role_goes_on_and_takes_no_new_one_with_it(
    capture, role, running
):
    capture.begin()
    wait_for(capture, "kept", "given_away")
    if not running:
        capture.end()
    capture.sql("ALTER TABLE given_away OWNER TO CURRENT_USER", "UPDATE given_away SET text = 'y'")
    make(capture, role, "b", "c")
    if not running:
        capture.begin()
    wait_for(capture, "kept", "given_away", "b", "c")
    assert equal(capture, "kept", "given_away", "b", "c")
    assert status(capture)["aside"] == {}


@pytest.mark.matrix
def test_a_table_of_another_role_leaves_the_publication_and_takes_no_other_with_it(capture, role):
    capture.finish()
    capture.sql("ALTER TABLE given_away OWNER TO CURRENT_USER")
    capture.set(exclude=["given_away"])
    make(capture, role, "b")
    capture.finish()
    assert spoken(capture) == {"kept", "b"}
    published = "SELECT tablename FROM pg_publication_tables ORDER BY 1"
    assert capture.query(published) == [("b",), ("kept",)]


@pytest.mark.matrix
def test_a_row_filter_of_a_table_of_another_role_goes_on_until_it_is_to_be_another(capture, role):
    path = capture.folder / "changelog.toml"
    before = path.read_text()
    path.write_text(before + '[capture.where]\n"public.given_away" = "id < 5"\n')
    capture.finish()
    capture.sql("ALTER TABLE given_away OWNER TO CURRENT_USER")
    make(capture, role, "b")
    capture.finish()
    assert spoken(capture) == {"kept", "given_away", "b"}
    path.write_text(before + '[capture.where]\n"public.given_away" = "id < 6"\n')
    make(capture, role, "c")
    code, said = capture.attempt()
    assert code == 1
    assert '"public.given_away"' in said
    assert '"public.c"' not in said


@pytest.mark.parametrize("version", first(1, ["partition", "tables"]))
def test_a_first_start_goes_on_without_what_it_may_not_read(capture, role, version):
    capture.set(on_error="log")
    if version == "tables":
        make(capture, role, "secret")
        table, whole = "secret", "secret"
    else:
        capture.sql(
            "CREATE TABLE whole (id integer PRIMARY KEY, text text) PARTITION BY RANGE (id)",
            "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10)",
            "INSERT INTO whole VALUES (1, 'x')",
            f"ALTER TABLE whole OWNER TO {role}",
        )
        table, whole = "part", "whole"
    capture.sql(f"ALTER TABLE {whole} OWNER TO {role}", f"REVOKE ALL ON {table} FROM {role}")
    capture.begin()
    wait_for(capture, "kept", "given_away")
    found = status(capture)
    assert set(found["aside"]) == {f"public.{whole}"}
    assert f'may not read table "public.{table}"' in found["aside"][f"public.{whole}"]
    capture.sql(f"GRANT SELECT ON {table} TO {role}")
    wait_for(capture, "kept", "given_away", whole)
    assert equal(capture, "kept", "given_away", whole)


@pytest.mark.matrix
def test_a_first_start_goes_on_without_what_it_may_not_publish(capture, role):
    capture.set(on_error="log")
    capture.sql(f"CREATE TABLE theirs {COLUMNS}", f"GRANT SELECT ON theirs TO {role}")
    capture.begin()
    wait_for(capture, "kept", "given_away")
    why = "belongs to another role: its owner alone may publish it"
    assert status(capture)["aside"] == {"public.theirs": why}
    capture.sql(f"ALTER TABLE theirs OWNER TO {role}")
    wait_for(capture, "kept", "given_away", "theirs")


@pytest.mark.matrix
def test_a_first_start_goes_on_without_what_it_may_not_alter_as_asked(capture, role):
    capture.set(on_error="log", replica_identity="full", envelope="nested")
    capture.sql(
        "CREATE TABLE whole (id integer PRIMARY KEY, text text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10)",
        f"ALTER TABLE whole OWNER TO {role}",
        f"GRANT SELECT ON whole, part TO {role}",
    )
    code, _, said = capture.run("--until", "now", "--yes")
    assert (code, spoken(capture)) == (0, {"kept", "given_away"}), said
    assert 'only its owner may alter table "public.part"' in said


@pytest.mark.matrix
def test_a_copy_of_a_table_that_may_not_be_read_any_more_sets_it_aside(capture, role):
    capture.set(on_error="log")
    capture.begin()
    wait_for(capture, "kept", "given_away")
    capture.sql(f"REVOKE ALL ON given_away FROM {role}")
    code, _, said = capture.run_other("resnapshot", "public.given_away")
    assert code == 0, said
    aside = lambda: "public.given_away" in status(capture)["aside"]  # noqa: E731
    wait_until(aside, DEADLINE_S, "the table is set aside")
    capture.sql("INSERT INTO kept VALUES (2, 'goes on')")
    assert equal(capture, "kept")
    capture.end()
    code, _, said = capture.run("--check")
    assert (code, '"public.given_away" would be excluded' in said) == (0, True), said


ANEW = ("kept", "given_away")


@pytest.mark.matrix
@pytest.mark.parametrize("way", first(1, ["resnapshot", "stop"]))
@pytest.mark.parametrize("running", first(1, [True, False]), ids=["running", "stopped"])
def test_all_tables_made_anew_exclude_no_new_ones(capture, running, way):
    capture.set(on_error="log", on_incompatible=way)
    capture.begin()
    wait_for(capture, *ANEW)
    if not running:
        capture.end()
    for table in ANEW:
        capture.sql(f"DROP TABLE {table}")
    if running:
        wait_for(capture)
        capture.end()
    for table in (*ANEW, "new_one", "new_two"):
        capture.sql(f"CREATE TABLE {table} {COLUMNS}", f"INSERT INTO {table} VALUES (7, 'z')")
    if running or way == "resnapshot":
        capture.begin()
        wait_for(capture, *ANEW, "new_one", "new_two")
        assert equal(capture, *ANEW, "new_one", "new_two")
        assert "excluded" not in capture.said()
        return
    said = [capture.attempt() for _ in range(2)]
    for code, text in said:
        assert code == 1
        assert "whose changes since then are lost: public.given_away, public.kept" in text
        assert "--on-incompatible resnapshot" in text
        assert "new_" not in text


@pytest.mark.parametrize("how", ["WHERE (id > 5)", "(id)"], ids=["filter", "columns"])
def test_a_filter_that_somebody_puts_into_the_publication_is_taken_off_and_its_table_copied(
    capture, how
):
    capture.finish()
    name = capture.query("SELECT pubname FROM pg_publication")[0][0]
    capture.sql(
        f"ALTER PUBLICATION {name} SET TABLE kept {how}, given_away",
        "INSERT INTO kept VALUES (2, 'filtered')",
        "INSERT INTO given_away VALUES (2, 'y')",
    )
    capture.finish()
    assert not capture.differing("kept")
    assert not capture.differing("given_away")
    assert capture.query("SELECT count(*) FROM pg_publication_rel WHERE prqual IS NOT NULL") == [
        (0,)
    ]
