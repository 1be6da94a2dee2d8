"""Signed statements: DSSE envelopes with Ed25519, by `cryptography`.

A statement that nobody signed is the bare document. Its digest is that of the statement, so signing
changes nothing in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from changelog.attestation.statement import Statement, altered, parsed
from changelog.contract.base.errors import ConfigurationError, RefutedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PAYLOAD = "application/vnd.in-toto+json"


class Signer(Protocol):
    """The holder of a private key."""

    key_id: str

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...


class KeyFile:
    """An Ed25519 private key in a PEM file, which is never shown."""

    def __init__(self, path: Path) -> None:
        """Read the key.

        Raises ConfigurationError: the file cannot be read, or has no key that is one.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            load_pem_private_key,
        )

        key = _loaded(path, lambda pem: load_pem_private_key(pem, None), Ed25519PrivateKey)
        self._key: Ed25519PrivateKey = key
        self.key_id = _key_id(key.public_key())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return self._key.sign(message)


def sealed(statement: bytes, signer: Signer | None) -> bytes:
    """Return the bytes of the file: the statement, or an envelope if somebody signs."""
    if signer is None:
        return statement
    envelope = {
        "payload": base64.b64encode(statement).decode(),
        "payloadType": PAYLOAD,
        "signatures": [
            {
                "keyid": signer.key_id,
                "sig": base64.b64encode(signer.sign(_encoding(statement))).decode(),
            }
        ],
    }
    return (json.dumps(envelope, indent=2) + "\n").encode()


def opened(content: bytes, name: str) -> Statement:
    """Read a statement, signed or not; signatures are not checked here.

    Raises RefutedError: it is altered, or no certificate.
    """
    envelope = _envelope(content)
    if envelope is None:
        return parsed(content, name)
    return parsed(_payload(envelope, name), name)


def is_signed(content: bytes) -> bool:
    """Tell whether a statement's file is an envelope with signatures."""
    return _envelope(content) is not None


def check_signature(content: bytes, name: str, public_key: Path) -> None:
    """Check that a statement is signed by a key.

    Raises RefutedError: it is not, or was changed since; ConfigurationError: the file has no public
    key.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - starts slowly
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    key: Ed25519PublicKey = _loaded(public_key, load_pem_public_key, Ed25519PublicKey)
    envelope = _envelope(content)
    if envelope is None:
        raise RefutedError(f"{name} is not signed", hint="leave out --public-key to check the rows")
    message = _encoding(_payload(envelope, name))
    for signature in _signatures(envelope, _key_id(key)):
        try:
            key.verify(signature, message)
        except InvalidSignature:
            continue
        return
    raise RefutedError(
        f"{name} is not signed by the key {_key_id(key)}",
        hint="it was altered, or signed by somebody else",
    )


def _signatures(envelope: Mapping[str, Any], key_id: str) -> list[bytes]:
    """Return the signatures that are said to be by a key."""
    try:
        return [
            base64.b64decode(signature["sig"], validate=True)
            for signature in envelope["signatures"]
            if signature["keyid"] == key_id
        ]
    except (KeyError, TypeError, ValueError):
        return []


def _envelope(content: bytes) -> Mapping[str, Any] | None:
    try:
        envelope = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return envelope if isinstance(envelope, dict) and "payload" in envelope else None


def _payload(envelope: Mapping[str, Any], name: str) -> bytes:
    try:
        if envelope["payloadType"] != PAYLOAD:
            raise ValueError(f"it holds {envelope['payloadType']!r}")
        return base64.b64decode(envelope["payload"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise altered(name, str(error)) from error


def _encoding(statement: bytes) -> bytes:
    """Return the bytes that are signed: DSSE's pre-authentication encoding."""
    kind = PAYLOAD.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(statement), statement)


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _loaded(path: Path, load: Any, kind: type) -> Any:  # noqa: ANN401 - of a package that is optional
    try:
        key = load(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        # Not the library's message: it may quote what is in the file.
        reason = (
            error.strerror if isinstance(error, OSError) else "it has no key without a password"
        )
        raise ConfigurationError(f"the key file {path} cannot be used: {reason}") from None
    if not isinstance(key, kind):
        raise ConfigurationError(
            f"the key in {path} is no Ed25519 key",
            hint="openssl genpkey -algorithm ed25519 -out FILE; "
            "openssl pkey -in FILE -pubout -out PUBLIC",
        )
    return key
