"""Bodies of requests, in no more memory than a bound."""

from __future__ import annotations

from starlette.requests import Request

from changelog.connect.requests import RequestError


async def whole_body(request: Request, most_bytes: int) -> bytes:
    """Return the body of a request; raises RequestError if it has more bytes than `most_bytes`."""
    raw = bytearray()
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > most_bytes:
        raise RequestError(413, f"a request may have {most_bytes} bytes at most")
    async for part in request.stream():
        raw += part
        if len(raw) > most_bytes:
            raise RequestError(413, f"a request may have {most_bytes} bytes at most")
    return bytes(raw)
