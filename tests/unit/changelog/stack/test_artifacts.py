from importlib.metadata import PackageNotFoundError
from itertools import chain

import pytest

from changelog.contract.base.errors import ConfigurationError, StackError
from changelog.runtime.installed.extras import MissingExtraError
from changelog.stack.download import artifacts
from changelog.stack.download.artifacts import (
    KAFKA_JARS,
    LOCKED,
    REGISTRY,
    S3_JARS,
    SPARK_JARS,
    Artifact,
    Pin,
    all_artifacts,
    format_lock,
    parse_lock,
    pin_of,
    spark_artifacts,
)


def test_every_artifact_has_a_checksum_and_a_size_in_the_lock_file():
    for artifact in LOCKED:
        pin = pin_of(artifact)
        assert len(bytes.fromhex(pin.sha256)) == 32
        assert pin.size_bytes > 1_000


def test_an_artifact_without_a_checksum_is_refused_by_name():
    with pytest.raises(StackError, match=r"org\.nowhere:thing:1\.0"):
        pin_of(Artifact("org.nowhere", "thing", "1.0"))


def test_a_lock_file_survives_writing_and_reading():
    pins = {"b:c:1": Pin("ff" * 32, 7), "a:c:1:zip": Pin("00" * 32, 123_456_789)}
    assert parse_lock(format_lock(pins)) == pins
    assert format_lock(parse_lock(format_lock(pins))) == format_lock(pins)


def test_coordinates_and_file_names_are_those_of_a_maven_repository():
    assert str(REGISTRY) == "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
    assert REGISTRY.file_name == "apicurio-registry-app-3.3.3-all.tar.gz"
    assert SPARK_JARS["4.2"][0].file_name == "delta-spark_4.2_2.13-4.4.0.jar"


def test_kafka_and_spark_share_one_version_of_the_clients():
    of_spark = chain(*SPARK_JARS.values())
    clients = {each for each in (*of_spark, *KAFKA_JARS) if each.name == "kafka-clients"}
    assert len(clients) == 1
    assert len(KAFKA_JARS) == len(set(KAFKA_JARS)) == 25


@pytest.mark.parametrize("minor", SPARK_JARS)
def test_the_jars_are_those_of_the_installed_spark(monkeypatch, minor):
    monkeypatch.setattr(artifacts, "version", lambda _: f"{minor}.7")
    jars = {jar.name: jar.version for jar in spark_artifacts()}
    assert f"delta-spark_{minor}_2.13" in jars
    assert jars["spark-sql-kafka-0-10_2.13"].startswith(f"{minor}.")
    assert set(spark_artifacts()) <= set(all_artifacts()) <= set(LOCKED)


def test_a_spark_without_jars_is_refused_with_those_that_have_some(monkeypatch):
    monkeypatch.setattr(artifacts, "version", lambda _: "5.1.0")
    with pytest.raises(ConfigurationError, match=r"pyspark 5\.1\.0 .* Spark 4\.0, 4\.1, 4\.2"):
        spark_artifacts()


def test_a_warehouse_on_s3_wants_the_spark_whose_hadoop_its_jars_fit(monkeypatch):
    monkeypatch.setattr(artifacts, "version", lambda _: "4.2.9")
    assert set(S3_JARS) < set(spark_artifacts("s3"))
    monkeypatch.setattr(artifacts, "version", lambda _: "4.0.1")
    with pytest.raises(ConfigurationError, match=r"s3:// needs Spark 4\.2; pyspark 4\.0\.1 is"):
        spark_artifacts("s3")
    assert not set(S3_JARS) & set(all_artifacts())


def test_no_spark_at_all_is_a_missing_extra(monkeypatch):
    def none(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(artifacts, "version", none)
    with pytest.raises(MissingExtraError, match=r"extra \[spark\]"):
        spark_artifacts()
