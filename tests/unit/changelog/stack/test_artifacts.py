import pytest

from changelog.contract.base.errors import StackError
from changelog.stack.download.artifacts import (
    KAFKA_JARS,
    LOCKED,
    REGISTRY,
    SPARK_JARS,
    Artifact,
    Pin,
    format_lock,
    parse_lock,
    pin_of,
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
    assert SPARK_JARS[0].file_name == "delta-spark_4.2_2.13-4.4.0.jar"


def test_kafka_and_spark_share_one_version_of_the_clients():
    clients = {each for each in (*SPARK_JARS, *KAFKA_JARS) if each.name == "kafka-clients"}
    assert len(clients) == 1
    assert len(KAFKA_JARS) == len(set(KAFKA_JARS)) == 25
