"""Templates to answers, with the headers that keep others out of the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from views.page.line.cells import duration, moment, size

FOLDER = Path(__file__).parent
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Of no-referrer a browser makes `Origin: null`, for forms of our own too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration,
        "moment": moment,
        "size": size,
        "tojson_text": lambda value: json.dumps(value, indent=2, default=str, ensure_ascii=False),
    }
    return environment


def rendered(
    name: str,
    values: Mapping[str, object],
    *,
    code: str = "",
    signed: bool = False,
    status: int = 200,
) -> HTMLResponse:
    """Return a page.

    Args:
        name: of the template.
        values: that it shows; every text is escaped.
        code: what its forms carry.
        signed: whether there is somebody to sign out.
        status: of the answer.
    """
    shown = {**values, "code": code, "signed": signed}
    text = _templates().get_template(f"{name}.html").render(shown)
    return HTMLResponse(text, status, dict(HEADERS))
