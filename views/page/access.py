"""Access to the page, and the check that a form is its own.

A visitor signs in once with the token and gets a cookie, which does not have the token: it has a
random name and an expiry time, authenticated by a code that only a holder of the token can compute.
So all workers with the same token accept it without remembering it; signing out ends it on all of
them. Without a token every visitor by loopback has access.

A form carries a code that is computed from the visitor's cookie, which no other site can read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from changelog.connect.http.additions import Sessions
from changelog.connect.http.admission import Admission, is_foreign

COOKIE = "changelog_page"
LIVES_S = 12 * 3600
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Access:
    """Decides what a request may do, and makes and checks the page's cookies."""

    admission: Admission  # the worker's credentials
    is_tls: bool  # whether the cookie is only sent by HTTPS
    sessions: Sessions  # the sessions that were ended
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, admission: Admission, *, is_tls: bool, sessions: Sessions) -> Access:
        """Return an instance whose key is derived from the token."""
        secret = admission.token or secrets.token_bytes(32)
        key = hmac.digest(secret, b"changelog page", hashlib.sha256)
        return cls(admission, is_tls, sessions, key)

    @property
    def needs_token(self) -> bool:
        """Return whether the page asks for a token."""
        return bool(self.admission.token)

    def is_local(self, request: Request) -> bool:
        """Return whether a request may be answered at all: without a token only by loopback."""
        return self.needs_token or self.admission.is_local(request.scope["headers"])

    def has_token(self, request: Request) -> bool:
        """Return whether a request carries the token itself, as programs do."""
        return self.admission.has_token(request.scope["headers"])

    def lets_in(self, request: Request) -> bool:
        """Return whether a request may see the page."""
        if not self.is_local(request):
            return False
        return not self.needs_token or self.has_token(request) or self.is_signed_in(request)

    def sign_in(self, response: Response, *, signed: bool) -> str:
        """Set a new cookie in a response, and return it.

        `signed` says whether it stands for the token; otherwise it is only for forms.
        """
        kind = "signed" if signed else "seen"
        claim = f"{kind}.{int(time.time()) + LIVES_S}.{secrets.token_hex(16)}"
        cookie = f"{claim}.{self._code(claim)}"
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=LIVES_S,
            path="/",
            secure=self.is_tls,
            httponly=True,
            samesite="strict",
        )
        return cookie

    def cookie(self, request: Request) -> str:
        """Return the cookie of a request if it is valid, else an empty text."""
        cookie = request.cookies.get(COOKIE, "")
        parts = cookie.split(".")
        if len(parts) != _PARTS or not (parts[1].isascii() and parts[1].isdecimal()):
            return ""
        is_ours = _is_equal(self._code(".".join(parts[:3])), parts[3])
        is_valid = is_ours and int(parts[1]) > time.time() and not self.sessions.has_ended(parts[2])
        return cookie if is_valid else ""

    def sign_out(self, request: Request) -> None:
        """End the session of a request: its cookie is no longer valid, also where it was copied.

        Raises ChangelogError: the other workers could not be informed.
        """
        parts = self.cookie(request).split(".")
        if len(parts) == _PARTS:
            self.sessions.end(parts[2], int(parts[1]))

    def form_code(self, cookie: str) -> str:
        """Return the code that forms for the holder of a cookie carry."""
        return self._code(f"form.{cookie}")

    def is_own_form(self, request: Request, code: str) -> bool:
        """Return whether this page made a form for the visitor who sent it."""
        cookie = self.cookie(request)
        is_same = not is_foreign(request.scope["headers"])
        return is_same and bool(cookie) and _is_equal(code, self.form_code(cookie))

    def is_signed_in(self, request: Request) -> bool:
        """Return whether the visitor has signed in with the token."""
        return self.cookie(request).startswith("signed.")

    def _code(self, claim: str) -> str:
        return hmac.new(self._key, claim.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_equal(computed: str, code: str) -> bool:
    return hmac.compare_digest(computed.encode("utf-8", "replace"), code.encode("utf-8", "replace"))
