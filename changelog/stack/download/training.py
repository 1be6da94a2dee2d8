"""A short session of Spark whose classes are kept: `python -m changelog.stack.download.training`.

It does a little of all that a rebuild does, since a class that is not loaded here is not in the
archive: a Delta table written, appended to, merged into and read, joins, aggregates, windows, JSON
and Avro, tasks in Python. Java writes the archive when it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use
from pyspark.sql.avro.functions import from_avro, to_avro

_SHORT = "-XX:TieredStopAtLevel=1"  # nothing runs so long that the better compiler pays
_SCHEMA = """{"type": "record", "name": "row", "fields": [
    {"name": "key", "type": "long"}, {"name": "text", "type": ["null", "string"]}]}"""


def main(folder: str, archive: str, jars: str) -> None:
    """Run the session in `folder` and have Java write the archive."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.local.dir", folder)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.authenticate", "true")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive} {_SHORT}")
        .getOrCreate()
    )
    _work(spark)
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with its input
    gateway.proc.wait()


def _work(spark: SparkSession) -> None:
    spark.sql(
        "CREATE TABLE rows (key BIGINT, text STRING, at TIMESTAMP, sum DECIMAL(20, 4)) USING delta"
    )
    rows = spark.range(20).selectExpr(
        "id AS key",
        "CAST(id AS STRING) AS text",
        "timestamp_micros(id * 1000000) AS at",
        "CAST(CAST(id AS DECIMAL(20, 4)) / 3 AS DECIMAL(20, 4)) AS sum",
    )
    rows.mapInArrow(_same, rows.schema).write.format("delta").mode("append").saveAsTable("rows")
    rows.where("key < 9").createOrReplaceTempView("changed")
    spark.sql(
        "MERGE INTO rows USING changed ON rows.key = changed.key "
        "WHEN MATCHED AND changed.key < 4 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(
        "SELECT a.text, count(*), count(DISTINCT b.key), max_by(struct(b.*), b.at), sum(a.sum), "
        "collect_list(to_json(struct(b.text, b.at))) FROM rows a LEFT JOIN changed b "
        "ON a.key = b.key WHERE EXISTS (SELECT 1 FROM rows c WHERE c.text = a.text) "
        "GROUP BY a.text ORDER BY 1 LIMIT 9"
    ).collect()
    avro = rows.select("key", to_avro(F.struct("key", "text"), _SCHEMA).alias("value"))
    avro.select("key", from_avro("value", _SCHEMA).alias("row")).createOrReplaceTempView("avro")
    spark.sql(
        "SELECT key, row_number() OVER (PARTITION BY key % 3 ORDER BY row.text), "
        "from_json(to_json(row), 'text STRING'), transform(array(key, 2), x -> x + 1), "
        "sha2(row.text, 256) FROM avro UNION ALL SELECT key, 1, null, null, null FROM changed"
    ).toArrow()
    spark.createDataFrame([(1, "a")], "key INT, text STRING").repartition(2).foreachPartition(_take)


def _take(rows: Iterable[Row]) -> None:
    for _ in rows:
        pass


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main(*sys.argv[1:])
