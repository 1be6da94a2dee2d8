"""Rows from entries that are no JSON documents: hashes of texts, and single texts.

Each becomes a row in JSON form, which the readers of documents then judge. What cannot be a row
of this kind is given to them as an empty text, which they call malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from views.verify.served.documents import Document, Form, Page, text_page
from views.verify.values.jsonform import alone, key_of

_NO_ROW = ""


def entries_page(value: str, ids: list[str], entries: Sequence[Any], form: Form) -> Page:
    """Return a page of entries as the server gave them.

    Args:
        value: what an entry is: `json`, `hash` or `string`.
        ids: of the rows.
        entries: for each row a text, a hash, or the mark of no entry of this kind.
        form: of the view's rows.
    """
    if value == "json":
        return text_page(ids, [text if isinstance(text, bytes) else b"" for text in entries])
    read: Callable[[str, Any, Form], str | dict[str, Any]] = _hash if value == "hash" else _text
    rows = [read(id_, entry, form) for id_, entry in zip(ids, entries, strict=True)]

    def documents() -> list[Document]:
        return list(zip(ids, rows, strict=True))

    return Page(None if _NO_ROW in rows else (ids, rows), documents)


def _hash(_: str, entry: Any, form: Form) -> str | dict[str, Any]:  # noqa: ANN401
    if not isinstance(entry, dict) or not entry:
        return _NO_ROW
    texts = {_decoded(name): _decoded(text) for name, text in entry.items()}
    row: dict[str, Any] = dict(texts)
    for name, kind in form.columns:
        text = texts.get(name)
        row[name] = None if text is None else alone(text, kind)
    return row


def _text(id_: str, entry: Any, form: Form) -> str | dict[str, Any]:  # noqa: ANN401
    if not isinstance(entry, bytes):
        return _NO_ROW
    try:
        row = key_of(id_, form.key)
    except ValueError:
        return _NO_ROW
    ((name, kind),) = (column for column in form.columns if column[0] not in row)
    row[name] = alone(_decoded(entry), kind)
    return row


def _decoded(text: bytes) -> str:
    """Return a text in which bytes that are no UTF-8 stay a fault, for the readers of values."""
    return text.decode("utf-8", "surrogateescape")
