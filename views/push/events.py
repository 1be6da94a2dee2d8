"""Changes of rows as CloudEvents, signed by the scheme of Standard Webhooks.

An event's id is the place of its record on the view's topic, so that it is the same whenever it is
sent again; `sequence` sorts the events of a view as text. https://cloudevents.io,
https://www.standardwebhooks.com
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from changelog.contract.base.errors import ConfigurationError
from views.changes.feed import KeyChange

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
_HINT = "`openssl rand -base64 32` makes one: export it as {name}, with whsec_ before it"
_PREFIX = "whsec_"
_LEAST_BYTES = 24
"""Of a secret, as Standard Webhooks asks."""


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """An event that is sent, perhaps several times."""

    id: str  # the same each time
    key: bytes  # of the row, JSON: what order is kept for
    body: bytes = field(repr=False)  # the event, JSON


def event_of(topic: str, life: str, change: KeyChange) -> OutgoingEvent:
    """Return the event of a change.

    `life`: the topic's own id; one that was made anew has another.
    """
    event_id = f"{life}-{change.offset}"
    is_gone = change.row == b"null"
    attributes = {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/{topic}",
        "type": "changelog.row.deleted" if is_gone else "changelog.row.upserted",
        "subject": change.key.decode(),
        "time": datetime.fromtimestamp(change.written_ms / 1000, UTC).isoformat(),
        "datacontenttype": "application/json",
        "sequence": f"{change.offset:020d}",
    }
    head = orjson.dumps(attributes)[:-1]
    data = b'{"key":%b,"row":%b}' % (change.key, change.row)
    return OutgoingEvent(event_id, change.key, b'%b,"data":%b}' % (head, data))


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests with one secret, or several while they are being exchanged."""

    secrets: Sequence[bytes] = field(default=(), repr=False)  # none: requests are not signed

    @classmethod
    def of(cls, text: str, name: str) -> Signer:
        """Read secrets as Standard Webhooks writes them, with blanks between.

        `name`: of the variable that has them, for errors, which quote nothing of them.

        Raises ConfigurationError: one is none, or too short.
        """
        secrets = []
        for part in text.split():
            try:
                secret = b64decode(part.removeprefix(_PREFIX), validate=True)
            except binascii.Error:
                secret = b""
            if len(secret) < _LEAST_BYTES:
                raise ConfigurationError(
                    f"{name} has no secret of {_LEAST_BYTES} bytes or more in base64",
                    hint=_HINT.format(name=name),
                )
            secrets.append(secret)
        if not secrets:
            raise ConfigurationError(
                f"requests are to be signed, and {name} is not set",
                hint=_HINT.format(name=name) + ", or choose --unsigned",
            )
        return cls(tuple(secrets))

    def headers(self, event: OutgoingEvent, now_s: int) -> dict[str, str]:
        """Return the headers of a request that is sent now."""
        headers = {
            "content-type": CONTENT_TYPE,
            "webhook-id": event.id,
            "webhook-timestamp": str(now_s),
        }
        if self.secrets:
            signed = b"%b.%d.%b" % (event.id.encode(), now_s, event.body)
            digests = (hmac.digest(secret, signed, "sha256") for secret in self.secrets)
            headers["webhook-signature"] = " ".join(
                f"v1,{b64encode(digest).decode()}" for digest in digests
            )
        return headers
