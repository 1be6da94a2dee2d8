"""librdkafka's settings become the Java client's."""

from __future__ import annotations

import pytest

from changelog.contract.base.errors import ConfigurationError
from replay.broker.client_options import java_options, travelling


def test_nothing_gives_nothing():
    assert java_options({}) == {}


def test_what_only_tunes_librdkafka_is_left_out():
    assert java_options({"queued.min.messages": "7", "client.id": "me"}) == {"client.id": "me"}


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password_becomes_a_login_module(name):
    options = {
        "security.protocol": "SASL_SSL",
        name: "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
    }
    java = java_options(options)
    assert java["sasl.mechanism"] == "SCRAM-SHA-512"
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a\\"b\\\\c";'
    )
    assert java["security.protocol"] == "SASL_SSL"
    assert set(java) == {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}


def test_certificates_travel_as_text(tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----{name}-----")
    java = java_options(
        {
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert java == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-----ca-----",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-----cert-----",
        "ssl.keystore.key": "-----key-----",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_certificates_travel_as_text_to_librdkafka_too(tmp_path):
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"-----{name}-----")
    options = {
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "cert"),
        "ssl.key.location": str(tmp_path / "key"),
        "sasl.password": "p",
    }
    assert travelling(options) == {
        "ssl.ca.pem": "-----ca-----",
        "ssl.certificate.pem": "-----cert-----",
        "ssl.key.pem": "-----key-----",
        "sasl.password": "p",
    }
    with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
        travelling({"ssl.ca.location": "/nowhere/ca.pem"})


@pytest.mark.parametrize(
    "options",
    [
        {"enable.ssl.certificate.verification": "false"},
        {"sasl.mechanism": "GSSAPI"},
        {"sasl.oauthbearer.config": "x"},
        {"ssl.ca.location": "/nowhere/ca.pem"},
    ],
)
def test_security_that_cannot_be_carried_over_is_refused(options):
    with pytest.raises(ConfigurationError, match=r"sasl|SASL|ssl") as refused:
        java_options({**options, "sasl.password": "canary"})
    assert "canary" not in str(refused.value)
