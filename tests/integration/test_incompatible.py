"""Tables that the log cannot go on with: stopped by name, copied anew, or set aside."""

from contextlib import closing

import psycopg2
import pytest

from tests.support.capture_command import CrashingCapture

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 500


class Capture(CrashingCapture):
    """A capture whose settings are added to, and whose rows are compared whole."""

    def set(self, **settings):
        path = self.folder / "changelog.toml"
        more = "".join(f'{name} = "{value}"\n' for name, value in settings.items())
        path.write_text(path.read_text() + more)

    def differing(self, table):
        """Give the keys of rows that differ between the table and the fold of its topic."""
        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            rows = {(row[0],): dict(zip(names, row, strict=True)) for row in cursor}
        folded = self.reader.folded(self.frontier(), f"{self.prefix}.{table}")
        return sorted(k for k in {*rows, *folded} if rows.get(k) != folded.get(k))

    def aside(self):
        return {str(table): why for table, why in self.frontier().aside.items()}


@pytest.fixture
def capture(dsn, kafka, registry, prefix, tmp_path):
    made = Capture(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
    made.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, text text, number integer)",
        f"INSERT INTO notes SELECT n, 'row ' || n, n FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE other (id integer PRIMARY KEY, text text)",
        "INSERT INTO other SELECT n, 'row ' || n FROM generate_series(1, 50) n",
        "ANALYZE notes",
    )
    yield made
    made.kill()


CHANGE = (
    "ALTER TABLE notes RENAME number TO amount",
    "DELETE FROM notes WHERE id <= 10",
    "UPDATE notes SET amount = -1 WHERE id BETWEEN 11 AND 20",
    "UPDATE other SET text = 'after' WHERE id = 1",
)


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
    assert capture.aside() == {}


POINTS = (
    "table set aside",
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
        assert capture.aside() == {}
        sinces.add(capture.frontier().since[f"{capture.prefix}.notes"])
    # Tombstones of dead keys stand at the `since` of their copy.
    assert {at for *_, at in capture.log("notes").regressions} <= sinces
