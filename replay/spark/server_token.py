"""The token of a Spark Connect server: whoever has it may run any code there.

`changelog spark-server` makes one at each start and keeps it in a file that only its user may
read, so that rebuilds of the same user on the same machine find it. Spark takes it from the
environment on both sides, so it appears in no setting, no log and no list of processes.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from changelog.contract.base.errors import ConfigurationError
from replay.base.config import CONNECT_PORT

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name that Spark reads
SETTING = "spark.connect.authenticate.token"
# The rights of group and others: a token's file must have none of these.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def token_file(port: int) -> Path:
    """Return the path of the token of the server at a port of this machine."""
    return Path(platformdirs.user_state_dir("changelog-store")) / f"spark-server-{port}.token"


@contextmanager
def served_token(port: int) -> Iterator[Path | None]:
    """Make a server that starts in the block ask for a token.

    Yields:
        The file that holds it while the block runs; None when the user's environment has one.
    """
    if os.environ.get(TOKEN):
        yield None
        return
    place, token = token_file(port), secrets.token_urlsafe(32)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # of a server that was killed
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
    except OSError as error:
        raise ConfigurationError(
            f"the token of the server cannot be kept at {place}: {error.strerror}",
            hint=f"give one in the environment: {TOKEN}",
        ) from error
    try:
        with _in_environment(token):
            yield place
    finally:
        place.unlink(missing_ok=True)


@contextmanager
def taken_token(url: str) -> Iterator[str]:
    """Make Spark's client find the token of a server while the block runs.

    Yields:
        The address for Spark: gRPC sends a token without TLS to `localhost` only, by that name.

    Raises ConfigurationError: others may read the file that should hold it.
    """
    parts = urlsplit(url)
    words = {part.partition("=")[0].strip("/") for part in parts.path.split(";")}
    if not _is_here(parts.hostname or "") or "use_ssl" in words:
        yield url
        return
    port = f":{parts.port}" if parts.port else ""
    url = parts._replace(netloc=f"localhost{port}").geturl()
    token = None
    if "token" not in words and not os.environ.get(TOKEN):
        token = _read_token(token_file(parts.port or CONNECT_PORT))
    with _in_environment(token):
        yield url


def _read_token(place: Path) -> str | None:
    """Read a token from a file that only we can access; return None if the file is missing."""
    try:
        with place.open(encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
                raise ConfigurationError(
                    f"others may read the token in {place}, or have written it",
                    hint="remove the file and start `changelog spark-server` again",
                )
            return file.read().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"the token in {place} cannot be read: {error.strerror}",
            hint=f"its server belongs to another user? give the token by {TOKEN}",
        ) from error


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def _in_environment(token: str | None) -> Iterator[None]:
    if token is None:
        yield
        return
    os.environ[TOKEN] = token
    try:
        yield
    finally:
        os.environ.pop(TOKEN, None)
