"""Lines of CSV and whole texts to COPY's text: `csvlines.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from changelog.native.base.copy_cells import CsvColumn
from changelog.native.compiled.library import ffi, lib
from changelog.native.compiled.loads.batches import BatchRange
from changelog.native.compiled.loads.written import written


class CsvLines:
    """Writes lines of records whose values are lines of CSV, or texts."""

    def __init__(
        self, columns: Sequence[CsvColumn], *, fields: int, delimiter: bytes, numbered: bool
    ) -> None:
        """Take the columns of a line, in their order.

        Args:
            columns: what fills each.
            fields: how many a value has; 0 where values are texts.
            delimiter: one byte between them.
            numbered: write behind them the place of the record, and that it is not gone.
        """
        entries = [
            (column.field, -1 if column.fraction is None else column.fraction, column.is_moment)
            for column in columns
        ]
        self._columns = ffi.new("csv_column[]", entries)
        self._count, self._numbered = len(entries), numbered
        self._fields, self._delimiter = fields, delimiter[0]
        self._out = ffi.gc(ffi.new("texts *"), lib.texts_free)

    def lines(self, records: BatchRange, chosen: array[int], first: int) -> tuple[int, bytes]:
        """Return the number of lines written, and the lines; see `JsonLines.lines`."""
        lib.texts_clear(self._out)
        done = lib.csv_lines(
            self._columns, self._count, self._fields, self._delimiter, self._numbered,
            records.batch.raw, records.first, ffi.from_buffer("int64_t[]", chosen), first,
            len(chosen), self._out,
        )  # fmt: skip
        return written(done, self._out)
