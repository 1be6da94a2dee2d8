"""One request to a server that may not answer yet, without a proxy of the user's."""

from __future__ import annotations

import httpx

from changelog.runtime.tls_trust import authorities


def probe(url: str, timeout_s: float) -> httpx.Response | None:
    """Return the answer to a GET, or None while the server gives none."""
    try:
        return httpx.get(url, timeout=timeout_s, trust_env=False, verify=authorities())
    except httpx.HTTPError:
        return None
