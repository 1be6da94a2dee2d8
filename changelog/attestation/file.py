"""Files of statements: read with their signature checked, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from changelog.attestation.envelope import check_signature, is_signed, opened
from changelog.attestation.statement import Statement
from changelog.contract.base.errors import ConfigurationError, SinkError


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementFile:
    """A statement in a file of the user."""

    path: Path
    statement: Statement
    signed: bool  # by anybody
    checked_key: bool  # whether the signature was checked by a key

    @classmethod
    def read(cls, path: Path, public_key: Path | None) -> StatementFile:
        """Read a file and check that no byte was changed, and its signature if a key is given.

        Raises RefutedError: it is altered, or not signed by the key; ConfigurationError: the file
        or the key cannot be read.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        if public_key is not None:
            check_signature(content, str(path), public_key)
        return cls(
            path=path,
            statement=opened(content, str(path)),
            signed=is_signed(content),
            checked_key=public_key is not None,
        )

    @property
    def signature(self) -> str:
        """Return the words for who signed it."""
        if not self.signed:
            return "not signed"
        return f"signed by {'the key' if self.checked_key else 'a key that was not checked'}"


def check_new(path: Path) -> None:
    """Check that a file can be written and is not there yet.

    Raises ConfigurationError: it is there, or cannot be made.
    """
    try:
        path.open("xb").close()
        path.unlink()
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} is there already, and a certificate is not overwritten",
            hint="choose another name, such as one with the date",
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error


def write_new(path: Path, content: bytes) -> None:
    """Write a file that appears whole, and overwrites none.

    Raises SinkError: it cannot be written, or has appeared meanwhile.
    """
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        part.rename(path)
    except OSError as error:
        raise SinkError(f"the certificate {path} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
