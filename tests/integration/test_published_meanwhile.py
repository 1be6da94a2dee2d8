"""What somebody does to the publication while no capture runs, and takes back before the next."""

import pytest

from tests.support.capture_command import CrashingCapture, capture_with

pytestmark = [pytest.mark.services, pytest.mark.slow]

OUT_AND_IN = "ALTER PUBLICATION {0} DROP TABLE ONLY notes", "ALTER PUBLICATION {0} ADD TABLE notes"
INSERTS_ALONE = (
    "ALTER PUBLICATION {0} SET (publish = 'insert')",
    "ALTER PUBLICATION {0} SET (publish = 'insert, update, delete, truncate')",
)
MADE_AGAIN = (
    "DROP PUBLICATION {0}",
    "CREATE PUBLICATION {0} FOR TABLE ONLY notes WITH (publish_via_partition_root = true)",
)


capture = capture_with(
    CrashingCapture, "CREATE TABLE more (id integer PRIMARY KEY)", notes=20, finishes=True
)


def unsent(capture, leave, back):
    """Commit changes that the publication does not send; returns the publication as it was."""
    capture.sql(leave.format(capture.prefix))
    capture.sql("UPDATE notes SET text = 'unsent' WHERE id = 7")
    capture.sql(back.format(capture.prefix))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(OUT_AND_IN, id="table"),
        pytest.param(INSERTS_ALONE, id="operations", marks=pytest.mark.matrix),
    ],
)
def test_tables_that_were_not_sent_for_a_while_are_named_and_copied_anew(capture, statements):
    unsent(capture, *statements)
    code, _, said = capture.run("--until", "now")
    assert code == 1
    assert "was without tables for a while" in said
    assert "public.notes" in said
    assert ("public.more" in said) == (statements is INSERTS_ALONE)
    capture.catch_up("--on-incompatible", "resnapshot")
    capture.check()
    capture.catch_up()


@pytest.mark.matrix
def test_a_publication_that_was_made_again_is_another_one(capture):
    capture.sql("DROP TABLE more")
    unsent(capture, *MADE_AGAIN)
    code, _, said = capture.run("--until", "now")
    assert (code, "was without tables for a while" in said) == (1, True)
    code, _, said = capture.run("--until", "now", "--on-incompatible", "resnapshot")
    if code:  # the newest versions of PostgreSQL alone go on
        assert "does not exist" in said
        assert "changelog slot drop" in said
        capture.command("slot drop", "--yes")
        capture.catch_up()
    capture.check()


@pytest.mark.matrix
def test_a_new_owner_takes_nothing_away(capture):
    capture.sql(
        "DO $$ BEGIN CREATE ROLE somebody SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$",
        f"ALTER PUBLICATION {capture.prefix} OWNER TO somebody",
    )
    capture.sql("UPDATE notes SET text = 'sent' WHERE id = 7")
    capture.catch_up()
    capture.check()


def test_twin_who_forgets_the_publication_loses_the_change(capture):
    unsent(capture, *OUT_AND_IN)
    capture.finish(defect="forget_the_publication")
    assert capture.differences()
