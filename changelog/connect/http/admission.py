"""Who may ask: whoever has the token; where there is none, whoever reaches it by loopback."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_BEARER, _BASIC = "bearer", "basic"
RawHeaders = Iterable[tuple[bytes, bytes]]
"""Of a request, as ASGI has them: names in small letters."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What lets a request in.

    Attributes:
        token: empty where everybody is let in who reaches it by loopback.
    """

    token: bytes = field(repr=False)

    def is_token(self, said: bytes) -> bool:
        """Tell whether that is the token."""
        return bool(self.token) and hmac.compare_digest(said, self.token)

    def has_token(self, headers: RawHeaders) -> bool:
        """Tell whether a request carries the token, as a bearer or as a password."""
        return self.is_token(_credential(_found(headers, b"authorization")))

    def is_local(self, headers: RawHeaders) -> bool:
        """Tell whether a request names this machine.

        A name of another site that leads to loopback does not: its pages would be let in.
        """
        return _host(_found(headers, b"host")) in LOOPBACK


def _found(headers: RawHeaders, name: bytes) -> bytes:
    return dict(headers).get(name, b"")


def _credential(said: bytes) -> bytes:
    """Return the token of a bearer, or the password of a basic authorization."""
    kind, _, rest = said.decode("latin-1").partition(" ")
    if kind.lower() == _BEARER:
        return rest.strip().encode("latin-1")
    if kind.lower() == _BASIC:
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _host(said: bytes) -> str:
    try:
        return urlsplit(f"//{said.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""
