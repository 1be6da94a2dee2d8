"""Servers that take nobody without TLS and a password, with certificates made for the occasion.

A broker with a listener for SCRAM over TLS, one for client certificates, and one whose certificate
is of another host; PostgreSQL with `hostssl` alone; the stack's registry behind https and a
password, and behind a certificate of another host.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from psycopg2.extensions import make_dsn

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.stack.base.location import own
from changelog.stack.base.places import server_user
from changelog.stack.base.ports import LOOPBACK as HOST
from changelog.stack.base.ports import pick
from changelog.stack.servers.kafka import KafkaServer
from changelog.stack.servers.postgres import PostgresServer
from tests.support.certificates import LOOPBACK, Authority, Pair
from tests.support.guarded_registry import GuardedRegistry

ELSEWHERE = "elsewhere.example"
USER = "ann"
WRONG = "canary-wrong-password"
_WITH_TLS = 15  # of the PostgreSQL builds that we have
_HBA = """
hostssl all         all       127.0.0.1/32 scram-sha-256
hostssl replication all       127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class Passwords:
    """Passwords that must never be shown; no other text of the project contains them."""

    postgres: str = "canary-postgres-Zx81"
    kafka: str = "canary-kafka-Zx82"
    registry: str = "canary-registry-Zx83"

    def __iter__(self) -> Iterator[str]:
        return iter((self.postgres, self.kafka, self.registry, WRONG))


@dataclass(frozen=True)
class SecureServers:
    """Where the servers are and what it takes to be let in.

    Attributes:
        postgres: DSN of the database `app`, with password and verify-full.
        sasl, certificate, elsewhere: addresses of the broker's listeners.
        registry, registry_elsewhere: URLs of the registry's guards.
        authority: file with the certificate of the authority of all of them.
        other_authority: file with the certificate of one that signed nothing.
        client: what the listener `certificate` wants to see.
        passwords: of all three.
    """

    postgres: str
    sasl: str
    certificate: str
    elsewhere: str
    registry: str
    registry_elsewhere: str
    authority: Path
    other_authority: Path
    client: Pair
    passwords: Passwords = field(default_factory=Passwords)

    def kafka(self, brokers: str = "", **changed: str) -> KafkaConnection:
        """Return the connection by password; `changed` options have `_` for `.`."""
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": self.passwords.kafka,
            "ssl.ca.location": str(self.authority),
        }
        options |= {name.replace("_", "."): value for name, value in changed.items()}
        return KafkaConnection(brokers=brokers or self.sasl, options=options)

    def kafka_by_certificate(self) -> KafkaConnection:
        """Return the connection by a client's certificate."""
        options = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(self.client.certificate),
            "ssl.key.location": str(self.client.key),
        }
        return KafkaConnection(brokers=self.certificate, options=options)

    def schema_registry(self, url: str = "", **changed: str) -> RegistryConnection:
        """Return the connection; `changed` options have `_` for `.`."""
        options = {
            "basic.auth.user.info": f"{USER}:{self.passwords.registry}",
            "ssl.ca.location": str(self.authority),
        }
        options |= {name.replace("_", "."): value for name, value in changed.items()}
        return RegistryConnection(url=url or self.registry, options=options)

    def dsn(self, **changed: str) -> str:
        """Return the DSN with other parameters."""
        return make_dsn(self.postgres, **changed)


@contextmanager
def secure_servers(registry: str, prefix: str) -> Iterator[SecureServers]:
    """Run them, in a folder that the servers' own user can enter; all ends with the context."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        folder.chmod(0o755)
        papers = folder / "papers"
        papers.mkdir(mode=0o755)
        authority, other = Authority(papers, "authority"), Authority(papers, "other")
        here = authority.sign("server", LOOPBACK)
        there = authority.sign("elsewhere", (ELSEWHERE,))
        passwords = Passwords()
        listeners = {name: f"{HOST}:{pick()}" for name in ("SASL", "MUTUAL", "ELSEWHERE")}
        broker = _broker(folder / "kafka", listeners, here, there, authority.certificate)
        postgres = _postgres(folder / "postgres", papers, here, passwords.postgres)
        stack.callback(broker.stop)
        broker.start()
        _add_user(broker.url, passwords.kafka)
        stack.callback(postgres.stop)
        postgres.start()
        guards = [
            stack.enter_context(GuardedRegistry(registry, pair, USER, passwords.registry))
            for pair in (here, there)
        ]
        yield SecureServers(
            postgres=make_dsn(
                postgres.dsn, sslmode="verify-full", sslrootcert=str(authority.certificate)
            ),
            sasl=listeners["SASL"],
            certificate=listeners["MUTUAL"],
            elsewhere=listeners["ELSEWHERE"],
            registry=guards[0].url,
            registry_elsewhere=guards[1].url,
            authority=authority.certificate,
            other_authority=other.certificate,
            client=authority.sign("client"),
            passwords=passwords,
        )


def _postgres(folder: Path, papers: Path, pair: Pair, password: str) -> PostgresServer:
    own_key = papers / "postgres.key"
    own_key.write_bytes(pair.key.read_bytes())
    own_key.chmod(0o600)
    own(own_key, server_user())
    rules = papers / "pg_hba.conf"
    rules.write_text(_HBA, "ascii")
    return PostgresServer(
        folder,
        pick(),
        version=_WITH_TLS,
        password=password,
        settings={
            "fsync": "off",
            "ssl": "on",
            "ssl_cert_file": str(pair.certificate),
            "ssl_key_file": str(own_key),
            "hba_file": str(rules),
        },
    )


def _broker(
    folder: Path, listeners: dict[str, str], here: Pair, there: Pair, trusted: Path
) -> KafkaServer:
    """Return a broker whose own listener, which only this file uses, stays plain."""
    port, controller = pick(), pick()
    plain = f"PLAINTEXT://{HOST}:{port}"
    others = [f"{name}://{where}" for name, where in listeners.items()]
    protocols = {
        "PLAINTEXT": "PLAINTEXT",
        "CONTROLLER": "PLAINTEXT",
        "SASL": "SASL_SSL",
        "MUTUAL": "SSL",
        "ELSEWHERE": "SSL",
    }
    properties = {
        "listeners": ",".join([plain, *others, f"CONTROLLER://{HOST}:{controller}"]),
        "advertised.listeners": ",".join([plain, *others]),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(trusted),
    }
    for name, pair in (("sasl", here), ("mutual", here), ("elsewhere", there)):
        store = pair.key.with_suffix(".store")
        store.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
        properties[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
        properties[f"listener.name.{name}.ssl.keystore.location"] = str(store)
    return KafkaServer(folder, port, controller, properties=properties)


def _add_user(brokers: str, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    new = UserScramCredentialUpsertion(USER, info, password.encode(), os.urandom(16))
    for future in admin.alter_user_scram_credentials([new]).values():
        future.result(timeout=30)
