"""Rights of tokens to write to topics."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from changelog.connect.http.admission import Admission, RawHeaders, credential
from changelog.contract.base.pattern import covers
from changelog.sections import Http


@dataclass(frozen=True, slots=True)
class Writer:
    """The holder of a token."""

    name: str  # of the token in the settings; empty for whoever may do all else here
    topics: Sequence[str]  # patterns of the topics that it may write to

    def may_write(self, topic: str) -> bool:
        """Return whether it may write to a topic."""
        return any(covers(pattern, topic) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class Rights:
    """The tokens that may write."""

    settings: Http = field(repr=False)
    admission: Admission  # of the worker's other requests

    def writer(self, headers: RawHeaders) -> Writer | None:
        """Return the sender of a request, or None if it has no credentials."""
        text = credential(headers)
        for name, entry in self.settings.tokens.items():
            if hmac.compare_digest(text, entry.token.encode()):
                return Writer(name, entry.topics)
        own = self.admission
        is_own = own.has_token(headers) if own.token else not text and own.is_local(headers)
        return Writer("", self.settings.topics) if is_own else None
