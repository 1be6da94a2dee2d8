"""Programs of others that the scoreboard runs: fetched from package indexes, each below one folder.

pgstream is built by Go from its module, with the compiler that its `go.mod` names; the output
plugin that it needs, wal2json, is taken from Debian's package for the same PostgreSQL. dlt gets an
environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from benchmarks.figures import say
from benchmarks.peer_environment import installed

PGSTREAM = "0.9.5"
_MODULE = f"github.com/xataio/pgstream@v{PGSTREAM}"
_GO = "go1.25.5"
DLT = "1.31.0"


def pgstream(place: Path) -> Path:
    """Build it below a folder, unless it is there; returns its command."""
    command = place.absolute() / f"pgstream-{PGSTREAM}"
    if not command.exists():
        say(f"pgstream {PGSTREAM} is built")
        env = {**os.environ, "GOTOOLCHAIN": _GO}
        words = ["go", "mod", "download", "-json", _MODULE]
        told = subprocess.run(words, env=env, capture_output=True, check=True).stdout
        words = ["go", "build", "-C", json.loads(told)["Dir"], "-o", str(command), "."]
        subprocess.run(words, env=env, check=True)
    return command


def plugins(place: Path, postgres: int) -> Path:
    """Fetch wal2json for a major version of PostgreSQL; returns the folder of the library."""
    package = place.absolute() / f"wal2json-{postgres}"
    libraries = package / "usr" / "lib" / "postgresql" / str(postgres) / "lib"
    if not libraries.exists():
        package.mkdir(parents=True, exist_ok=True)
        words = ["apt-get", "-qq", "download", f"postgresql-{postgres}-wal2json"]
        subprocess.run(words, cwd=package, check=True)
        (archive,) = package.glob("*.deb")
        words = ["dpkg-deb", "-x", str(archive), str(package)]
        subprocess.run(words, check=True)
    return libraries


def dlt(place: Path) -> Path:
    """Install it below a folder, unless it is there; returns its Python."""
    return (
        installed(place, "dlt", DLT, "psycopg2-binary", extras="[postgres,sql-database]") / "python"
    )
