"""Spark's settings of a store are those that the environment says to everybody else."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.stores import STORES
from changelog.stack.download.artifacts import STORE_JARS
from replay.spark.object_store import SETTINGS, abfs_settings, gs_settings, s3_settings

PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2"

LIMITS = (
    "attempts.maximum",
    "connection.establish.timeout",
    "connection.timeout",
    "retry.interval",
    "retry.limit",
)
KEYS = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_SESSION_TOKEN": "so"}
LAKE = "spark.hadoop.fs.s3a.bucket.lake"


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


ABFS = "spark.hadoop.fs.azure"
ACCOUNT = "lake.dfs.core.windows.net"
AT_AZURE = f"abfss://views@{ACCOUNT}/w"
SECRETS = {
    "AZURE_STORAGE_ACCOUNT_KEY": "hidden-key",
    "AZURE_STORAGE_SAS_TOKEN": "hidden-sas",
    "AZURE_STORAGE_CLIENT_SECRET": "hidden-secret",
}


@pytest.mark.parametrize(
    ("environ", "setting", "text"),
    [
        ("AZURE_STORAGE_ACCOUNT_KEY", "account.key", "${env.AZURE_STORAGE_ACCOUNT_KEY}"),
        ("AZURE_STORAGE_SAS_TOKEN", "sas.fixed.token", "${env.AZURE_STORAGE_SAS_TOKEN}"),
        (
            "AZURE_STORAGE_CLIENT_SECRET",
            "account.oauth2.client.secret",
            "${env.AZURE_STORAGE_CLIENT_SECRET}",
        ),
        ("AZURE_FEDERATED_TOKEN_FILE", "account.oauth2.token.file", "/run/token"),
        ("", "account.oauth.provider.type", f"{PROVIDER}.MsiTokenProvider"),
    ],
)
def test_at_azure_a_setting_names_the_variable_of_a_secret(environ, setting, text) -> None:
    given = {environ: SECRETS.get(environ, "/run/token")} if environ else {}
    settings = abfs_settings(AT_AZURE, {**given, "AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c"})
    assert settings[f"{ABFS}.{setting}.{ACCOUNT}"] == text
    assert not set(SECRETS.values()) & set(settings.values())


def test_another_store_than_azure_s_speaks_of_blobs_alone() -> None:
    environ = {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:10000/lake", **SECRETS}
    with pytest.raises(ConfigurationError, match="speaks HTTP, by which"):
        abfs_settings(AT_AZURE, environ)
    environ["AZURE_ALLOW_HTTP"] = "true"
    with pytest.raises(ConfigurationError, match="speaks HTTP, and abfss:// is HTTPS"):
        abfs_settings(AT_AZURE, environ)
    settings = abfs_settings(AT_AZURE.replace("abfss", "abfs"), environ)
    assert settings[f"{ABFS}.abfs.endpoint"] == "127.0.0.1:10000"
    assert settings[f"{ABFS}.fns.account.service.type"] == "BLOB"


def test_google_s_client_reads_the_environment_itself(tmp_path) -> None:
    settings = gs_settings("gs://lake/w", {"GOOGLE_APPLICATION_CREDENTIALS": "/run/me.json"})
    assert settings["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    assert "/run/me.json" not in settings.values()
    path = tmp_path / "account.json"
    path.write_text('{"private_key": "hidden", "gcs_base_url": "http://127.0.0.1:1"}')
    settings = gs_settings("gs://lake/w", {"GOOGLE_SERVICE_ACCOUNT": str(path)})
    assert settings["spark.hadoop.fs.gs.auth.service.account.json.keyfile"] == str(path)
    assert settings["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:1/"
    assert "hidden" not in settings.values()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        gs_settings("gs://lake/w", {"GOOGLE_SERVICE_ACCOUNT": str(tmp_path / "none")})


def test_each_store_has_its_settings_and_jars() -> None:
    assert set(STORES) == set(SETTINGS) == set(STORE_JARS)
