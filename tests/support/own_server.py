"""Fixtures for modules that want a PostgreSQL of their own, of each version that is named."""

import pytest

from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.services import POSTGRES_SETTINGS


def server_of(versions):
    @pytest.fixture(scope="module", params=versions, name="server")
    def server(request, tmp_path_factory):
        directory = tmp_path_factory.mktemp(f"pg{request.param}")
        with PostgresServer(
            directory, pick(), version=request.param, settings=POSTGRES_SETTINGS, password="pw"
        ) as made:
            yield made

    return server


def capture_of(kind, *statements):
    """Make the fixture `capture`: a database of `server` with a project, where statements ran."""

    @pytest.fixture(name="capture")
    def capture(server, kafka, registry, prefix, tmp_path):
        server.create_database(prefix)
        dsn = server.database_dsn(prefix)
        made = kind(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
        made.sql(*statements)
        yield made
        made.kill()

    return capture
