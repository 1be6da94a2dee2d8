"""The HTTP modules that clients of others use: httpx, and httpx2 where that is installed.

confluent_kafka takes httpx2 if it is there, which other programs of the same environment bring. Its
errors and answers are then of other classes, under the same names.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

HTTP_MODULES = tuple(import_module(name) for name in ("httpx", "httpx2") if find_spec(name))
NO_ANSWER: tuple[type[Exception], ...] = (*(one.HTTPError for one in HTTP_MODULES), OSError)
"""Errors of a server that does not answer, whichever module asks."""
