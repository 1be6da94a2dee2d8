"""Where a mark still is, byte by byte: the judge of an erasure is the file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import redis

from changelog.stack.stack import Stack
from tests.support.sql import execute


def traces(folder: Path, marks: list[str]) -> list[str]:
    """Return the files below a folder that have one of some marks, compressed or not."""
    wanted = [mark.encode() for mark in marks]
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(mark in part for part in _contents(path) for mark in wanted)
    )


def _contents(path: Path) -> Iterator[bytes]:
    try:
        yield path.read_bytes()
        if path.suffix == ".parquet":
            yield repr(pq.read_table(path).to_pylist()).encode()
    except FileNotFoundError:
        return  # a server has just removed it


def topic_traces(stack: Stack, topic: str, marks: list[str]) -> list[str]:
    """Return the files of a topic's partitions on the broker that have one of some marks."""
    home = stack.directory / "kafka"
    folders = [path for path in home.rglob(f"{topic}-*") if path.is_dir()]
    assert folders, f"no folder of {topic} below {home}"
    return [f"{folder.name}/{file}" for folder in folders for file in traces(folder, marks)]


def database_traces(dsn: str, marks: list[str]) -> list[str]:
    """Return the data files of a database of PostgreSQL that have one of some marks.

    Its WAL is not looked at: that is out of an erasure's reach.
    """
    # What is in memory alone is written; files of dropped tables go at a checkpoint.
    ((folder, oid),) = execute(
        dsn,
        "CHECKPOINT",
        "SELECT current_setting('data_directory'), oid FROM pg_database "
        "WHERE datname = current_database()",
    )
    return traces(Path(folder) / "base" / str(oid), marks)


def cache_traces(url: str, view: str, marks: list[str]) -> list[str]:
    """Return the names of a view's entries in the cache that have one of some marks."""
    client = redis.Redis.from_url(url, decode_responses=True)
    with client:
        names = [str(name) for name in client.scan_iter(f"{view}:*")]
        values = {name: repr(_value(client, name)) for name in names}
    return sorted(
        name for name, value in values.items() if any(mark in name + value for mark in marks)
    )


def _value(client: redis.Redis, name: str) -> object:
    match client.type(name):
        case "string":
            return client.get(name)
        case "set":
            return client.smembers(name)
        case "hash":
            return client.hgetall(name)
        case _:
            return None
