"""The few file operations on a warehouse, through Hadoop's file systems as Spark uses them.

So a warehouse may be wherever Spark can write, with the credentials that Spark has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def uri_of(warehouse: str) -> str:
    """Give a warehouse without a closing slash, a local folder as its absolute path."""
    if "://" in warehouse:
        return warehouse.rstrip("/")
    return str(Path(warehouse.removeprefix("file:")).expanduser().resolve())


class Files:
    """Files and folders by URI or absolute path."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def names(self, folder: str) -> list[str]:
        """List the names in a folder; none when it is not there."""
        system, path = self._of(folder)
        if not system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(path))

    def exists(self, place: str) -> bool:
        """Tell whether a file or folder is there."""
        system, path = self._of(place)
        return bool(system.exists(path))

    def remove(self, folder: str) -> None:
        """Remove a folder and all in it; none there is no error."""
        system, path = self._of(folder)
        system.delete(path, True)

    def _of(self, place: str) -> tuple[Any, Any]:
        context: Any = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(place)
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path
