"""The certificate authorities that HTTP clients trust."""

import ssl
from functools import cache

import httpx


@cache
def authorities() -> ssl.SSLContext:
    """Return the one TLS context of this process, with the authorities of httpx's choice.

    To read them costs 50 ms of CPU, which each client would spend for itself, plain HTTP or not.
    """
    return httpx.create_ssl_context()
