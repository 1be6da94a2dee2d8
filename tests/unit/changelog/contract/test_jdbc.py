"""URLs of Java's driver, as documents print them, and what libpq makes of them."""

import pytest
from psycopg2.extensions import parse_dsn

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.jdbc import libpq_uri


@pytest.mark.parametrize(
    ("url", "means"),
    [
        (
            "jdbc:postgresql://0.0.0.1:5432/postgres",
            {"host": "0.0.0.1", "port": "5432", "dbname": "postgres"},
        ),
        (
            "jdbc:postgresql://localhost:5432/postgres?useUnicode=true&characterEncoding=utf8",
            {"host": "localhost", "port": "5432", "dbname": "postgres"},
        ),
        ("jdbc:postgresql://localhost/test", {"host": "localhost", "dbname": "test"}),
        ("jdbc:postgresql:test", {"host": "localhost", "dbname": "test"}),
        ("jdbc:postgresql:/", {"host": "localhost"}),
        ("jdbc:postgresql://db/", {"host": "db"}),
        (
            "jdbc:postgresql://localhost/test?user=fred&password=sec%26ret&ssl=true",
            {
                "host": "localhost",
                "dbname": "test",
                "user": "fred",
                "password": "sec&ret",
                "sslmode": "verify-full",
            },
        ),
        (
            "jdbc:postgresql://a:1,b:2/test?sslmode=require&ssl=true&targetServerType=primary",
            {
                "host": "a,b",
                "port": "1,2",
                "dbname": "test",
                "sslmode": "require",
                "target_session_attrs": "primary",
            },
        ),
        (
            "jdbc:postgresql://[::1]:5433/my%20db?ApplicationName=two words&connectTimeout=3",
            {
                "host": "::1",
                "port": "5433",
                "dbname": "my db",
                "application_name": "two words",
                "connect_timeout": "3",
            },
        ),
        ("postgresql://me@db/shop", {"user": "me", "host": "db", "dbname": "shop"}),
        ("host=db dbname=shop", {"host": "db", "dbname": "shop"}),
    ],
)
def test_a_url_means_the_same_to_libpq(url, means):
    assert parse_dsn(libpq_uri(url)) == means


@pytest.mark.parametrize(
    "tail",
    [
        "?sslfactory=a.B",
        "?pasword=canary",
        "?socketFactory=canary&user=a",
        "?targetServerType=canary",
        "#canary",
    ],
)
def test_what_has_no_counterpart_is_refused_by_name_alone(tail):
    with pytest.raises(ConfigurationError) as raised:
        libpq_uri("jdbc:postgresql://db/shop" + tail)
    assert "canary" not in str(raised.value)
    assert raised.value.hint
