"""What a process must not import: commands start quickly, and workers stay small."""

import subprocess
import sys

import pytest

ENCODE = """
from changelog.batch.rows import BatchCodec, fields_of
from changelog.contract.codec import SchemaIds
from changelog.contract.relation import Column, Relation, TableName
from changelog.contract.types import column_type

bases = ["int8", "float8", "date", "timestamptz", "text"]
columns = tuple(Column(base, column_type(base, base)) for base in bases)
table = Relation(1, TableName("public", "t"), columns, ("int8",))
full = [b"1", b"2.5", b"2020-01-01", b"2020-01-01 00:00:00+00", b"a"]
rows = fields_of([full, [b"2", None, None, None, None]], len(bases))
assert len(BatchCodec(table, SchemaIds(1, 2)).encode_values(rows)) == 2
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import changelog.cli", {"confluent_kafka", "numpy", "psycopg2", "pyarrow", "httpx"}),
        ("import changelog.capture.run", {"pandas", "pyspark"}),
        (ENCODE, {"pandas"}),
    ],
    ids=["a command", "capture", "encoding"],
)
def test_what_is_heavy_is_not_imported(code: str, heavy: set[str]) -> None:
    tell = f"{code}\nimport sys\nprint(*(sys.modules.keys() & {heavy!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []
