"""Rights of tokens: topics that they may write to, and views whose changes they may read."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from changelog.connect.http.admission import Admission, RawHeaders, credential
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.pattern import covers
from changelog.sections import Http


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token."""

    name: str  # of the token in the settings; empty for whoever may do all else here
    topics: Sequence[str]  # patterns of the topics that it may write to
    views: Sequence[str] = ()  # patterns of the views whose changes it may read
    origins: Sequence[str] = ()  # sites whose pages may use the token to read

    def may_write(self, topic: str) -> bool:
        """Return whether it may write to a topic."""
        return any(covers(pattern, topic) for pattern in self.topics)

    def may_read(self, view: str) -> bool:
        """Return whether it may read the changes of a view."""
        return any(covers(pattern, view) for pattern in self.views)


@dataclass(frozen=True, slots=True)
class Rights:
    """The tokens of the settings, and their rights."""

    settings: Http = field(repr=False)
    admission: Admission  # of the worker's other requests

    def __post_init__(self) -> None:
        """Refuse settings in which two holders have the same token: one would have both rights.

        Raises ConfigurationError: two have.
        """
        own = self.admission.token
        holders = {own: "the worker"} if own else {}
        for name, entry in self.settings.tokens.items():
            token = entry.token.encode()
            if token in holders:
                raise ConfigurationError(
                    f'{holders[token]} and "{name}" of [http.tokens] have the same token',
                    hint="give each a token of its own",
                )
            holders[token] = f'"{name}"'

    def holder(self, token: bytes) -> Holder | None:
        """Return the holder of a token of the settings; None if it is none of them."""
        for name, entry in self.settings.tokens.items():
            if hmac.compare_digest(token, entry.token.encode()):
                return Holder(name, entry.topics, entry.views, entry.origins)
        return None

    def writer(self, headers: RawHeaders) -> Holder | None:
        """Return the sender of a request, or None if it has no credentials."""
        text = credential(headers)
        if holder := self.holder(text):
            return holder
        own = self.admission
        is_own = own.has_token(headers) if own.token else not text and own.is_local(headers)
        return Holder("", self.settings.topics) if is_own else None
