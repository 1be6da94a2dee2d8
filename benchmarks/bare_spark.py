"""The least that a job on Spark and Delta does: a session, and one row written to a table.

`benchmarks.replay` runs it as a process of its own, beside `rebuild-view` of a small view.
"""

import sys

from pyspark.sql import SparkSession

from changelog.stack.download.fetch import spark_jars
from replay.spark.session import prepare_environment

MASTER = "local[*]"


def main(path: str) -> None:
    """Write the row to a new Delta table at `path`."""
    prepare_environment(MASTER)
    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.jars", ",".join(str(jar) for jar in spark_jars(None)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.range(1).write.format("delta").save(path)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
