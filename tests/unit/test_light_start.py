"""What a process must not import: commands start quickly, and workers stay small."""

import subprocess
import sys

import pytest

from changelog.native.choice import IS_COMPILED

HEAVY = {"numpy", "pandas", "pyarrow", "pyspark", "duckdb", "deltalake"}

# Without a compiler nothing was built, and the headers are parsed.
PARSERS = {"pycparser", "cffi"} if IS_COMPILED else set()


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import changelog.cli", {"pydantic", "rich", "importlib.metadata", "changelog.sections"}),
        ("import changelog.commands", {"confluent_kafka", "numpy", "psycopg2", "pyarrow", "httpx"}),
        ("import changelog.connect.cli", {"confluent_kafka", "psycopg2", "starlette", "uvicorn"}),
        (
            "from changelog.config import every_setting\nassert list(every_setting())",
            HEAVY | {"confluent_kafka", "psycopg2", "httpx", "typer"},
        ),
        ("import replay, views", HEAVY | {"confluent_kafka", "httpx", "pydantic"}),
        ("from replay import Log", {"pandas", "pyspark", "duckdb", "deltalake"}),
        ("import changelog.capture.loop.run", HEAVY | {"httpx", "authlib", *PARSERS}),
        ("import changelog.capture.copy.snapshot_worker", HEAVY | {"httpx", "fastavro"}),
    ],
    ids=[
        "names of commands",
        "commands",
        "serve",
        "the settings",
        "replay",
        "a log",
        "capture",
        "a worker",
    ],
)
def test_what_is_heavy_is_not_imported(code: str, heavy: set[str]) -> None:
    tell = f"{code}\nimport sys\nprint(*(sys.modules.keys() & {heavy!r}))"
    ran = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []
