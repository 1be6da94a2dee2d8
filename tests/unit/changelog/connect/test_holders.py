"""What somebody with the token may not make a worker do."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import psycopg2
import pytest

from changelog.connect.jobs import capture as capture_module
from changelog.connect.jobs.capture import run_capture
from changelog.connect.jobs.children import ExitResult
from changelog.connect.postgres.session import Session, of_sink
from changelog.connect.rules.captures import parse_capture
from changelog.connect.rules.kinds import problems, unmasked
from changelog.connect.rules.settings import parse_settings
from changelog.connect.rules.topics import check_dead_letters, check_topics
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.source.connect.connect import connect

SINK = {"name": "s", "topics": "a", "connection.url": "postgresql://db/app"}
CAPTURE = {
    "name": "s",
    "connector.class": "changelog.PostgresSource",
    "capture.slot": "shop",
    "database.hostname": "db",
}
SECRET = "pw-canary-0123"


_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


@contextmanager
def asking_server() -> Iterator[tuple[int, list[bytes]]]:
    """Serve; gives the port, and the messages that followed the question."""
    told = list[bytes]()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=_serve, args=(listener, told), daemon=True)
        thread.start()
        yield listener.getsockname()[1], told
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _serve(listener: socket.socket, told: list[bytes]) -> None:
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        link.settimeout(10)
        with closing(link), suppress(OSError, struct.error):
            while True:
                size, code = struct.unpack("!ii", link.recv(8, socket.MSG_WAITALL))
                link.recv(size - 8, socket.MSG_WAITALL)
                if code not in {_SSL_REQUEST, _GSS_REQUEST}:
                    break
                link.sendall(b"N")
            link.sendall(b"R" + struct.pack("!ii", 8, 3))
            told.append(link.recv(4096))


@pytest.fixture
def of_the_worker(monkeypatch, tmp_path):
    """Gives the worker's user each kind of password that libpq looks for."""
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:*:*:*:{SECRET}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    return monkeypatch


@pytest.mark.parametrize("lacking", [(), ("PGPASSWORD",)])
def test_the_workers_password_goes_to_no_connector(of_the_worker, lacking):
    for name in lacking:
        of_the_worker.delenv(name)
    with asking_server() as (port, told):
        # Beside a connector's: the worker's own do use it.
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(f"postgresql://ann@127.0.0.1:{port}/app")
        assert SECRET.encode() in told.pop()
        settings = parse_settings({**SINK, "connection.url": f"postgresql://127.0.0.1:{port}/app"})
        with pytest.raises(ChangelogError):
            Session(of_sink(settings))
        source = {**CAPTURE, "database.hostname": "127.0.0.1", "database.port": str(port)}
        with pytest.raises(ChangelogError):
            connect(parse_capture(source).dsn)
        own = {**SINK, "connection.url": f"postgresql://127.0.0.1:{port}/app"}
        own |= {"connection.user": "ann", "connection.password": "its own"}
        with pytest.raises(ChangelogError):
            Session(of_sink(parse_settings(own)))
    assert SECRET not in str(told)
    assert b"its own" in told[-1]


def test_a_capture_has_none_of_the_workers_variables_of_libpq(of_the_worker):
    of_the_worker.setenv("PGSSLMODE", "verify-full")
    of_the_worker.setenv("PGSSLKEY", "key.pem")
    found = {}

    def run_child(*_, environment, **__):
        found.update(environment)
        return ExitResult(0, "", "", stopped=True)

    of_the_worker.setattr(capture_module, "run_child", run_child)
    kafka = KafkaConnection(brokers="k")
    run_capture(kafka, None, parse_capture(CAPTURE), None, started=list)  # type: ignore[arg-type]
    assert {name for name in found if name.startswith("PG")} == {"PGSSLMODE"}
    assert "PATH" in found


@pytest.mark.parametrize(
    "more",
    [
        "?passfile=/root/.pgpass",
        "?service=production",
        "?sslkey=/root/key.pem&sslcert=/root/cert.pem",
        "?sslpassword=x",
        "?sslkeylogfile=/tmp/keys",
        "?krbsrvname=x",
        "?host=/var/run/postgresql",
        "?replication=true",
    ],
)
def test_parts_of_an_address_that_reach_for_more_are_refused(more):
    assert "connection.url" in problems({**SINK, "connection.url": f"postgresql://db/app{more}"})
    dsn = {key: value for key, value in CAPTURE.items() if key != "database.hostname"}
    assert problems({**dsn, "postgres.dsn": f"postgresql://db/app{more}"})


@pytest.mark.parametrize(
    "url", ["postgresql:///app", "postgresql://%2Ftmp/app", "postgresql://db,/app"]
)
def test_an_address_names_hosts(url):
    assert "connection.url" in problems({**SINK, "connection.url": url})
    assert problems({**CAPTURE, "database.hostname": "/var/run/postgresql"})


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:pa@{SECRET}@db/app",
        f"postgresql://ann:pa/{SECRET}@db/app",
        f"postgresql://ann:12/{SECRET}@db/app",
        f"postgresql://ann:{SECRET}",
        f"postgresql://ann:a@b/{SECRET}@db:5432/app",
        f"host=db password=a {SECRET}",
        f"host=db port={SECRET}",
    ],
)
def test_no_part_of_a_password_that_is_not_escaped_is_told(url):
    with pytest.raises(ConfigurationError) as told:
        connect(url)
    assert SECRET not in str(told.value)
    assert SECRET not in str(problems({**SINK, "connection.url": url}))
    assert problems({**SINK, "connection.url": url})


@pytest.mark.parametrize(
    "settings",
    [
        '{"plugin.library.paths": "/tmp/evil.so"}',
        "plugin.library.paths=/tmp/evil.so",
        '{"ssl.engine.location": "/tmp/evil.so"}',
        '{"ssl.key.location": "/root/key.pem"}',
        '{"security.protocol": "PLAINTEXT"}',
        '{"sasl.oauthbearer.token.endpoint.url": "http://evil"}',
        '{"debug": "all"}',
        '{"linger.ms": "5", "enable.ssl.certificate.verification": "false"}',
    ],
)
def test_producers_get_sizes_and_times_alone(settings):
    assert "capture.producer" in problems({**CAPTURE, "capture.producer": settings})


def test_sizes_and_times_of_producers_may_be_given():
    assert not problems({**CAPTURE, "capture.producer": '{"linger.ms": "5", "batch.size": "9"}'})


def test_a_condition_that_is_more_than_one_is_refused():
    where = '{"public.orders": "order_id > 0); CREATE TABLE injected(a int); --"}'
    assert "capture.where" in problems({**CAPTURE, "capture.where": where})
    assert not problems({**CAPTURE, "capture.where": '{"public.orders": "order_id > 0"}'})


@pytest.mark.parametrize(
    "more",
    [
        {"topics": "a,workers-state"},
        {"topics": "workers-tasks"},
        {"topics": "__consumer_offsets"},
        {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "workers-state"},
    ],
)
def test_topics_of_the_workers_are_read_and_written_by_no_sink(more):
    with pytest.raises(ConfigurationError):
        check_topics(parse_settings({**SINK, **more}), "workers")


@pytest.mark.parametrize(
    ("topic", "there", "settings"),
    [
        ("shop.orders", [], {"cleanup.policy": "compact"}),
        ("_schemas", [], {"cleanup.policy": "compact,delete"}),
        ("other-state", ["other-tasks"], {"cleanup.policy": "delete"}),
    ],
)
def test_dead_letters_go_to_no_log(topic, there, settings):
    with pytest.raises(ConfigurationError):
        check_dead_letters(topic, [topic, *there], settings)


def test_dead_letters_go_to_a_topic_of_their_own():
    check_dead_letters("shop.dead", ["shop.dead"], {"cleanup.policy": "delete"})


@pytest.mark.parametrize("key", ["database.sslmode", "database.dbname", "capture.slot"])
def test_a_kept_password_goes_only_where_it_went(key):
    kept = {**CAPTURE, "database.password": SECRET, "database.sslmode": "verify-full"}
    given = {**kept, "database.password": "********", key: "disable"}
    if key == "capture.slot":
        assert unmasked(given, kept)["database.password"] == SECRET
    else:
        with pytest.raises(ConfigurationError, match=key):
            unmasked(given, kept)


def test_one_password_may_change_while_another_is_kept():
    kept = {**SINK, "connection.password": SECRET, "basic.auth.user.info": SECRET}
    given = {**kept, "connection.password": "new", "basic.auth.user.info": "********"}
    assert unmasked(given, kept)["basic.auth.user.info"] == SECRET


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("capture.snapshot_workers", "2147483647"),
        ("capture.partitions", "2147483647"),
        ("capture.groups", json.dumps({f"g{n}": [f"public.t{n}"] for n in range(65)})),
        ("schema.registry.url", "file:///etc/passwd"),
        ("schema.registry.url", "http://a\nb"),
    ],
)
def test_a_capture_is_bounded_and_its_registry_is_one_of_http(key, value):
    assert key in problems({**CAPTURE, key: value})
