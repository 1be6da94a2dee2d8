"""Every change of a table while its log goes on: exact, or refused by name with the way out.

Each is verified against the source: the fold of the log equals the table, row by row.
"""

import subprocess
import sys

import pytest

from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 200


class Capture(CaptureCommand):
    """A capture whose log is compared with its source."""

    def verified(self):
        """Take in what was committed, and compare every table with the source."""
        self.catch_up()
        (line,) = self.command("verify", "--json")
        assert line["verified"] is True, line
        return line

    def write(self, round_number):
        """Change some rows of each sort, and leave most as they are."""
        first = round_number * 10
        self.sql(
            f"UPDATE notes SET text = text || '!' WHERE id BETWEEN {first} AND {first + 3}",
            f"DELETE FROM notes WHERE id = {first + 4}",
            f"INSERT INTO notes (id) VALUES ({1000 + round_number})",
        )


capture = capture_with(Capture, notes=ROWS)


CONSTANTS = {
    "boolean": "true",
    "smallint": "-7",
    "bigint": "9223372036854775807",
    "real": "0.1",
    "double precision": "-1.5e300",
    "numeric(12,3)": "-1234.500",
    "numeric": "'NaN'",
    "text": "'é \" \\ 😀'",
    "varchar(9)": "''",
    "bytea": r"'\x00ff80'",
    "date": "'0044-03-15 BC'",
    "timestamp": "'infinity'",
    "timestamptz": "'2024-02-29 01:02:03.456789+05'",
    "time": "'24:00:00'",
    "interval": "'1 mon -3 days'",
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "jsonb": """'{"a": [1, null]}'""",
    "box": "'(1,1),(0,0)'",
    "int4range": "'[1,5)'",
}


@pytest.mark.matrix
def test_columns_with_constants_of_many_types_read_right_in_older_rows(capture):
    capture.catch_up()
    columns = [
        f"ADD c{n} {kind} DEFAULT {text}" for n, (kind, text) in enumerate(CONSTANTS.items())
    ]
    capture.sql("ALTER TABLE notes " + ", ".join(columns))
    capture.write(1)
    capture.verified()
    # What is said later of the default changes no older row, on either side.
    capture.sql(
        "ALTER TABLE notes ALTER c1 SET DEFAULT 99, ALTER c0 DROP DEFAULT",
        "INSERT INTO notes (id, c7) VALUES (2000, NULL)",
    )
    capture.write(2)
    capture.verified()
    # The constant stays on the log when a rewrite takes it out of the catalogue.
    capture.sql("VACUUM FULL notes")
    capture.sql("ALTER TABLE notes ADD last integer", "INSERT INTO notes (id) VALUES (3000)")
    capture.write(3)
    capture.verified()


@pytest.mark.matrix
def test_twin_a_constant_that_is_forgotten_is_seen(capture):
    capture.catch_up()
    capture.sql("ALTER TABLE notes ADD more integer DEFAULT 5")
    capture.write(1)
    words = [sys.executable, "-m", "tests.support.crashing_capture", str(capture.folder)]
    words += ["--until", "now", "--defect", "forget_constants"]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    line, *_ = capture.command("verify", "--json", codes={3})
    assert line["verified"] is False


@pytest.mark.matrix
def test_a_constant_of_a_partitioned_table_is_that_of_its_partitions(capture):
    capture.sql(
        "CREATE TABLE parted (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (100) TO (200)",
        "INSERT INTO parted SELECT generate_series(1, 150)",
    )
    capture.catch_up()
    capture.sql("ALTER TABLE parted ADD more text DEFAULT 'x'", "INSERT INTO parted VALUES (160)")
    capture.sql(
        "CREATE TABLE higher PARTITION OF parted FOR VALUES FROM (200) TO (300)",
        "INSERT INTO parted VALUES (201, 'y'), (202, NULL)",
    )
    capture.verified()


@pytest.mark.matrix
@pytest.mark.parametrize(
    "change",
    first(
        1,
        [
            "ADD more float DEFAULT random()",
            "ADD more integer[] DEFAULT '{}'",
            "ADD more double precision DEFAULT 'NaN'",
            "ADD more integer GENERATED ALWAYS AS IDENTITY",
        ],
    ),
)
def test_a_default_that_no_schema_can_hold_is_refused_by_name(capture, change):
    capture.catch_up()
    capture.sql(f"ALTER TABLE notes {change}", "INSERT INTO notes (id) VALUES (1000)")
    code, _, said = capture.run("--until", "now")
    assert code == 1
    for part in ('table "public.notes"', f'"{capture.prefix}.notes-value"', "['more']"):
        assert part in said
