"""Who may ask: whoever has the token; where there is none, whoever reaches it by loopback.

A browser sends requests for any page that it shows, with the passwords that it remembers. It tells
where they come from in two headers that no script can set or leave out: `Sec-Fetch-Site` (to HTTPS
and loopback) and `Origin` (with each method but GET and HEAD). curl and the clients of Kafka
Connect send neither, and so need nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_BEARER, _BASIC = "bearer", "basic"
_OURS = {b"", b"none", b"same-origin"}
_DEFAULT_PORTS = {80, 443}
RawHeaders = Iterable[tuple[bytes, bytes]]  # of a request, as ASGI has them: names in small letters


@dataclass(frozen=True, slots=True)
class Admission:
    """Credentials that admit a request."""

    token: bytes = field(repr=False)  # empty where everybody is let in who reaches it by loopback

    def is_token(self, text: bytes) -> bool:
        """Tell whether that is the token."""
        return bool(self.token) and hmac.compare_digest(text, self.token)

    def has_token(self, headers: RawHeaders) -> bool:
        """Tell whether a request carries the token, as a bearer or as a password."""
        return self.is_token(_credential(_header(headers, b"authorization")))

    def is_local(self, headers: RawHeaders) -> bool:
        """Tell whether a request names this machine.

        A name of another site that leads to loopback does not: its pages would be let in.
        """
        return _host(_header(headers, b"host")) in LOOPBACK


def is_foreign(headers: RawHeaders) -> bool:
    """Tell whether a page of another site sent a request.

    `Origin: null` is what a page without an address sends; our own do too where their policy hides
    the address, and then `Sec-Fetch-Site` says that they are ours.
    """
    site, origin = _header(headers, b"sec-fetch-site"), _header(headers, b"origin")
    if site not in _OURS:
        return True
    if origin == b"null":
        return site != b"same-origin"
    return bool(origin) and _address(origin) != _address(b"//" + _header(headers, b"host"))


def is_followed_link(headers: RawHeaders) -> bool:
    """Tell whether somebody followed a link, in a window of its own."""
    fetch = _header(headers, b"sec-fetch-mode"), _header(headers, b"sec-fetch-dest")
    return fetch == (b"navigate", b"document")


def _address(url: bytes) -> tuple[str, int | None] | None:
    """Return host and port of a URL, the port of HTTP and HTTPS left out; None for no URL."""
    try:
        parts = urlsplit(url.decode("latin-1"))
        port = parts.port
    except ValueError:
        return None
    return (parts.hostname or "", None if port in _DEFAULT_PORTS else port)


def _header(headers: RawHeaders, name: bytes) -> bytes:
    return dict(headers).get(name, b"")


def _credential(header: bytes) -> bytes:
    """Return the token of a bearer, or the password of a basic authorization."""
    kind, _, rest = header.decode("latin-1").partition(" ")
    if kind.lower() == _BEARER:
        return rest.strip().encode("latin-1")
    if kind.lower() == _BASIC:
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _host(header: bytes) -> str:
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""
