"""Access to the page, and the check of its forms.

Whoever has the token signs in with it once and gets a cookie that holds no token: a random name and
an end, with a code that only a holder of the token can make. All workers of one token know it, and
none has to remember it; whoever signs out ends it for all. Without a token everybody is let in who
reaches this by loopback.

A form carries a code of the cookie of whom it was made for, which no other site can read.
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
    """Rights of a request."""

    admission: Admission  # of the worker
    is_tls: bool  # whether the cookie goes by HTTPS alone
    sessions: Sessions  # those that were ended
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, admission: Admission, *, is_tls: bool, sessions: Sessions) -> Access:
        """Return it, with a key that follows from the token."""
        secret = admission.token or secrets.token_bytes(32)
        key = hmac.digest(secret, b"changelog page", hashlib.sha256)
        return cls(admission, is_tls, sessions, key)

    @property
    def needs_token(self) -> bool:
        """Tell whether the page asks for a token."""
        return bool(self.admission.token)

    def is_local(self, request: Request) -> bool:
        """Tell whether a request may be answered at all: without a token, by its host."""
        return self.needs_token or self.admission.is_local(request.scope["headers"])

    def has_token(self, request: Request) -> bool:
        """Tell whether a request carries the token itself, as programs do."""
        return self.admission.has_token(request.scope["headers"])

    def lets_in(self, request: Request) -> bool:
        """Tell whether somebody may see the page."""
        if not self.is_local(request):
            return False
        return not self.needs_token or self.has_token(request) or self.is_signed_in(request)

    def sign_in(self, response: Response, *, signed: bool) -> str:
        """Give somebody a cookie, and return it.

        `signed`: whether it stands for the token; else it is for forms alone.
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
        """Return the cookie of a request if it is one of ours that still holds; else nothing."""
        cookie = request.cookies.get(COOKIE, "")
        parts = cookie.split(".")
        if len(parts) != _PARTS or not (parts[1].isascii() and parts[1].isdecimal()):
            return ""
        is_ours = _is_equal(self._code(".".join(parts[:3])), parts[3])
        holds = is_ours and int(parts[1]) > time.time() and not self.sessions.has_ended(parts[2])
        return cookie if holds else ""

    def sign_out(self, request: Request) -> None:
        """End the session of a request: its cookie holds no more, wherever it was copied to.

        Raises ChangelogError: it could not be told to all workers.
        """
        parts = self.cookie(request).split(".")
        if len(parts) == _PARTS:
            self.sessions.end(parts[2], int(parts[1]))

    def form_code(self, cookie: str) -> str:
        """Return the code that the forms of a cookie's session carry."""
        return self._code(f"form.{cookie}")

    def is_own_form(self, request: Request, code: str) -> bool:
        """Tell whether a form was made by this page for the visitor who sent it."""
        cookie = self.cookie(request)
        is_same = not is_foreign(request.scope["headers"])
        return is_same and bool(cookie) and _is_equal(code, self.form_code(cookie))

    def is_signed_in(self, request: Request) -> bool:
        """Tell whether somebody gave the token before."""
        return self.cookie(request).startswith("signed.")

    def _code(self, claim: str) -> str:
        return hmac.new(self._key, claim.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_equal(computed: str, code: str) -> bool:
    return hmac.compare_digest(computed.encode("utf-8", "replace"), code.encode("utf-8", "replace"))
