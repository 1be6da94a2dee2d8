"""Pairs of keys for signatures, in PEM."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def keys(
    folder: Path, key: Ed25519PrivateKey | X25519PrivateKey | None = None
) -> tuple[Path, Path]:
    """Write a private and a public key; returns their files."""
    private = key or Ed25519PrivateKey.generate()
    secret, public = folder / "key.pem", folder / "public.pem"
    secret.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return secret, public
