"""Values that display themselves as a small table, as text and in a notebook. Pure.

The HTML takes its colours from the page, so that it reads in light and dark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

MOST_ROWS = 20
"""Rows that are shown; a note says how many are not."""
_TABLE = "border-collapse:collapse;color:inherit;background:transparent"
_CELL = "text-align:left;padding:.2em .8em;border-bottom:1px solid rgba(128,128,128,.35)"
_NOTE = "opacity:.75;font-size:.9em"


@dataclass(frozen=True, slots=True)
class Sheet:
    """A small table.

    Attributes:
        caption: the line above.
        columns: their names.
        rows: texts, one for each column.
        notes: the lines below.
        count: how many rows there are in all; None if `rows` has all of them.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    count: int | None = None

    @property
    def _all_notes(self) -> list[str]:
        hidden = (self.count or len(self.rows)) - len(self.rows)
        return [*([f"and {hidden:,} more"] if hidden > 0 else []), *self.notes]

    def text(self) -> str:
        """Return the table as lines of text."""
        return "\n".join([self.caption, *self._lines(), *(f"  {note}" for note in self._all_notes)])

    def _lines(self) -> Iterator[str]:
        if not self.rows:
            return
        cells = [list(self.columns), *([*row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield ("  " + "  ".join(padded)).rstrip()

    def html(self) -> str:
        """Return the table as HTML; all texts are escaped."""
        head = "".join(f'<th style="{_CELL}">{escape(name)}</th>' for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) + "</tr>"
            for row in self.rows
        )
        table = (
            f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        )
        notes = "".join(f'<div style="{_NOTE}">{escape(note)}</div>' for note in self._all_notes)
        return f"<div><div>{escape(self.caption)}</div>{table if self.rows else ''}{notes}</div>"


class SheetValue(ABC):
    """A value that displays itself as a small table."""

    __slots__ = ()

    @abstractmethod
    def sheet(self) -> Sheet:
        """Return the table."""

    def __repr__(self) -> str:
        """Return the table as text."""
        return self.sheet().text()

    def _repr_html_(self) -> str:
        return self.sheet().html()
