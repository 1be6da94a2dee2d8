"""How many tasks scan a topic, and which offsets each of them reads."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from changelog.contract.connection import KafkaConnection
from replay.probe import refine_density, sample_density
from replay.read import Layer, TopicRange
from replay.splits import layers, tasks_of


def layers_of(kafka: KafkaConnection, wanted: TopicRange, *, cores: int) -> list[Layer]:
    """Cut a range so that its tasks have about as many records; none where partitions suffice.

    Reads a few records here and there, if so many offsets could be worth more tasks.

    Raises:
        UnavailableLogError: the brokers do not answer.
        LogError: they refuse.
    """
    topic, partitions = wanted.topic, len(wanted.ends)
    offsets = sum(wanted.ends) - sum(wanted.starts)
    if tasks_of(offsets, partitions=partitions, cores=cores) <= partitions:
        return []
    density = sample_density(kafka, {topic: (wanted.starts, wanted.ends)})[topic]
    tasks = tasks_of(density.records, partitions=partitions, cores=cores)
    if tasks <= partitions:
        return []
    return layers(refine_density(kafka, topic, density, tasks=tasks), tasks)


def cores_of(spark: SparkSession) -> int:
    """Give how many tasks run at once; 1 where the session does not tell (Spark Connect)."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return 1
