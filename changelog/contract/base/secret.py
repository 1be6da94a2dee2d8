"""Keep passwords out of logs, errors and manifests."""

from __future__ import annotations

import re

_URL_PASSWORD = re.compile(r"(?P<head>[a-zA-Z][a-zA-Z0-9+.-]*://[^:/@\s]*):[^\s'\"]*@")
_KEY_PASSWORD = re.compile(
    r"(?i)\b(?P<key>[\w.-]*(?:password|passwd|passphrase|secret|token|api[._-]?key|\.pem"
    r"|sasl\.jaas\.config|user\.info))"
    r"(?P<equals>['\"]?\s*[=:]\s*)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&]+)"
)
_PRIVATE_KEY = re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)")


def redacted(text: str) -> str:
    """Return `text` with passwords, tokens and private keys replaced by `***`.

    Knows URLs, `key=value` and `key: value` pairs (JSON and Python's dict form too) and PEM. Where
    the end of a secret is in doubt it takes too much rather than too little.

    >>> redacted("postgresql://ann:s3cret@db/app")
    'postgresql://ann:***@db/app'
    >>> redacted("host=db password='a b' user=ann")
    'host=db password=*** user=ann'
    """
    text = _PRIVATE_KEY.sub("***", text)
    text = _URL_PASSWORD.sub(r"\g<head>:***@", text)
    return _KEY_PASSWORD.sub(r"\g<key>\g<equals>***", text)
