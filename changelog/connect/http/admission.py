"""Admission of requests: by the token, or without one by loopback alone.

A browser sends requests for any page that it shows, with the passwords that it remembers. It says
where they come from in two headers that no script can set or leave out: `Sec-Fetch-Site` (to HTTPS
and loopback) and `Origin` (with each method but GET and HEAD). curl and the clients of Kafka
Connect send neither, so they are not affected.
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
RawHeaders = Iterable[tuple[bytes, bytes]]  # a request's headers as ASGI has them, in lower case


@dataclass(frozen=True, slots=True)
class Admission:
    """The credentials that admit a request."""

    token: bytes = field(repr=False)  # empty if every request by loopback is admitted

    def is_token(self, text: bytes) -> bool:
        """Return whether a text is the token."""
        return bool(self.token) and hmac.compare_digest(text, self.token)

    def has_token(self, headers: RawHeaders) -> bool:
        """Return whether a request carries the token, as a bearer token or as a password."""
        return self.is_token(credential(headers))

    def is_local(self, headers: RawHeaders) -> bool:
        """Return whether a request is addressed to this machine, by its header Host.

        A name of another site that resolves to loopback is refused: pages of that site could
        otherwise ask here.
        """
        return _host(_header(headers, b"host")) in LOOPBACK


def is_foreign(headers: RawHeaders) -> bool:
    """Return whether a page of another site sent a request.

    A page without an address sends `Origin: null`. Our own pages do so too, because their referrer
    policy hides the address, and then `Sec-Fetch-Site` says that they are ours.
    """
    site, origin = _header(headers, b"sec-fetch-site"), _header(headers, b"origin")
    if site not in _OURS:
        return True
    if origin == b"null":
        return site != b"same-origin"
    return bool(origin) and _address(origin) != _address(b"//" + _header(headers, b"host"))


def is_followed_link(headers: RawHeaders) -> bool:
    """Return whether a request opens a page in a window, not in a frame or by a script."""
    fetch = _header(headers, b"sec-fetch-mode"), _header(headers, b"sec-fetch-dest")
    return fetch == (b"navigate", b"document")


def _address(url: bytes) -> tuple[str, int | None] | None:
    """Return host and port of a URL, without a default port; None if it is not a URL."""
    try:
        parts = urlsplit(url.decode("latin-1"))
        port = parts.port
    except ValueError:
        return None
    return (parts.hostname or "", None if port in _DEFAULT_PORTS else port)


def _header(headers: RawHeaders, name: bytes) -> bytes:
    return dict(headers).get(name, b"")


def credential(headers: RawHeaders) -> bytes:
    """Return the bearer token of a request, or the password of basic authentication."""
    scheme, _, text = _header(headers, b"authorization").decode("latin-1").partition(" ")
    if scheme.lower() == _BEARER:
        return text.strip().encode("latin-1")
    if scheme.lower() == _BASIC:
        try:
            return base64.b64decode(text, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _host(header: bytes) -> str:
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""
