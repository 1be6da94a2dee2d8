"""Keep passwords out of logs, errors and manifests."""

from __future__ import annotations

import re

_URL_PASSWORD = re.compile(r"(?P<head>[a-zA-Z][a-zA-Z0-9+.-]*://[^:/@\s]*):[^@\s]*@")
_KEY_PASSWORD = re.compile(
    r"(?i)\b(?P<key>[\w.-]*(?:password|passwd|secret|token|sasl\.jaas\.config))"
    r"(?P<equals>\s*[=:]\s*)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&]+)"
)


def redacted(text: str) -> str:
    """Return `text` with the passwords of URLs and of `key=value` pairs replaced by `***`.

    >>> redacted("postgresql://ann:s3cret@db/app")
    'postgresql://ann:***@db/app'
    >>> redacted("host=db password='a b' user=ann")
    'host=db password=*** user=ann'
    """
    text = _URL_PASSWORD.sub(r"\g<head>:***@", text)
    return _KEY_PASSWORD.sub(r"\g<key>\g<equals>***", text)
