"""A PostgreSQL and its physical standby, as two servers of this machine."""

import subprocess
import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from changelog.stack.base.location import own
from changelog.stack.base.places import server_user
from changelog.stack.base.ports import LOOPBACK, pick
from changelog.stack.servers.postgres import DATABASE, SUPERUSER, PostgresServer, bin_dir
from tests.support.sql import execute
from tests.support.wait import wait_until

FOLLOWS = "standby"
"""The physical slot through which the standby follows."""

COMMON = {"fsync": "off", "wal_keep_size": "256MB", "wal_sender_timeout": "10s"}


class StandbyServer(PostgresServer):
    """A standby: its files are copied from a primary that runs, at its first start."""

    def __init__(self, directory, port, *, primary, version, settings=None):
        conninfo = (
            f"host={LOOPBACK} port={primary.port} user={SUPERUSER} dbname={DATABASE} "
            "application_name=standby"
        )
        more = {"primary_conninfo": conninfo, "primary_slot_name": FOLLOWS}
        more |= {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"}
        if version >= 17:
            more["sync_replication_slots"] = "on"
        super().__init__(
            directory, port, version=version, settings={**COMMON, **more, **(settings or {})}
        )
        self._primary = primary

    def prepare(self):
        data = self.work_directory
        if not (data / "PG_VERSION").is_file():
            data.parent.mkdir(parents=True, exist_ok=True)
            data.mkdir(mode=0o700, exist_ok=True)
            user = server_user()
            own(data, user)
            uid, gid = user or (None, None)
            command = [str(bin_dir(self._version) / "pg_basebackup"), "-D", str(data), "-w"]
            command += ["-h", LOOPBACK, "-p", str(self._primary.port), "-U", SUPERUSER]
            subprocess.run(
                [*command, "-X", "stream", "-c", "fast", "--no-sync"],
                check=True,
                capture_output=True,
                user=uid,
                group=gid,
                extra_groups=[] if user else None,
                cwd=data,
            )
            (data / "standby.signal").touch()
            own(data / "standby.signal", user)
        super().prepare()

    def complete(self):
        """Its databases are the primary's."""

    def promote(self):
        with closing(self._connect("postgres")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_promote()")


@dataclass
class Pair:
    primary: PostgresServer
    standby: StandbyServer

    def either(self, database):
        """Return a connection string of whichever of the two is the primary."""
        hosts, ports = f"{LOOPBACK},{LOOPBACK}", f"{self.primary.port},{self.standby.port}"
        return (
            f"host={hosts} port={ports} user={SUPERUSER} dbname={database} "
            "target_session_attrs=read-write connect_timeout=3"
        )

    def followed(self, slot):
        """Wait until the standby has a logical slot for good."""
        statement = (
            "SELECT count(*) = 1 FROM pg_replication_slots"
            f" WHERE slot_name = '{slot}' AND synced AND NOT temporary"
        )

        def there():
            # An idle primary gives the standby's copy no place to begin.
            ask(self.primary.dsn, "SELECT pg_log_standby_snapshot()::text")
            return ask(self.standby.dsn, statement)

        wait_until(there, 90, "the slot on the standby")

    def fail_over(self, database):
        """Lose the primary, promote the standby; returns where one writes from now on."""
        self.primary.kill()
        self.standby.promote()
        return self.standby.database_dsn(database)

    def replayed(self):
        """Wait until the standby has replayed all that the primary has."""
        end = ask(self.primary.dsn, "SELECT pg_current_wal_insert_lsn()::text")
        wait_until(
            lambda: ask(self.standby.dsn, f"SELECT pg_last_wal_replay_lsn() >= '{end}'"),
            60,
            f"the standby at {end}",
        )


def ask(dsn, statement):
    rows = execute(dsn, statement)
    return rows[0][0] if rows else None


@contextmanager
def pair(version, settings=None):
    """Run both; all ends with the context."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="changelog-pair-")))
        folder.chmod(0o755)  # under root the servers run as another user
        first = pick()
        primary = PostgresServer(
            folder / "primary", first, version=version, settings={**COMMON, **(settings or {})}
        )
        primary.start()
        stack.callback(primary.stop)
        ask(primary.dsn, f"SELECT pg_create_physical_replication_slot('{FOLLOWS}', true)::text")
        standby = StandbyServer(folder / "standby", pick([first]), primary=primary, version=version)
        standby.start()
        stack.callback(standby.stop)
        yield Pair(primary, standby)
