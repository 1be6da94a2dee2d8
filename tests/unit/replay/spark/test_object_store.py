"""Spark's settings of a store are those that the environment says to everybody else."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from replay.spark.object_store import is_s3, s3_settings

LIMITS = (
    "attempts.maximum",
    "connection.establish.timeout",
    "connection.timeout",
    "retry.interval",
    "retry.limit",
)
KEYS = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "so"}
LAKE = "spark.hadoop.fs.s3a.bucket.lake"


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("s3://b/w", True),
        ("s3a://b/w", True),
        ("gs://b/w", False),
        ("/data/s3", False),
        (None, False),
    ],
)
def test_where_s3_is_spoken(place, wanted) -> None:
    assert is_s3(place) is wanted


def test_amazon_s_own_store_needs_a_region_at_most() -> None:
    found = s3_settings("s3://lake/views", {"AWS_DEFAULT_REGION": "eu-west-1", **KEYS})
    limits = {name: found.pop(f"{LAKE}.{name}") for name in LIMITS}
    assert (limits["attempts.maximum"], limits["retry.limit"]) == ("0", "3")
    assert found == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        f"{LAKE}.endpoint.region": "eu-west-1",
    }


def test_another_store_is_reached_by_its_path() -> None:
    environ = {"AWS_ENDPOINT_URL": "https://store.example.com", "AWS_REGION": "r", **KEYS}
    found = s3_settings("s3a://lake/views", environ)
    assert found[f"{LAKE}.endpoint"] == "https://store.example.com"
    assert found[f"{LAKE}.path.style.access"] == "true"
    hosted = {**environ, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert s3_settings("s3a://lake/views", hosted)[f"{LAKE}.path.style.access"] == "false"


def test_no_secret_becomes_a_setting() -> None:
    environ = {"AWS_ENDPOINT_URL": "https://store.example.com", **KEYS}
    assert not set(KEYS.values()) & set(s3_settings("s3://lake/views", environ).values())


@pytest.mark.parametrize("asked", ["", "false", "no"])
def test_http_is_refused_unless_it_is_allowed(asked) -> None:
    environ = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ALLOW_HTTP": asked}
    with pytest.raises(ConfigurationError, match="speaks HTTP"):
        s3_settings("s3://lake/views", environ)
    allowed = s3_settings("s3://lake/views", {**environ, "AWS_ALLOW_HTTP": "true"})
    assert allowed[f"{LAKE}.connection.ssl.enabled"] == "false"


def test_a_place_without_a_bucket_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no bucket"):
        s3_settings("s3:///views", {})
