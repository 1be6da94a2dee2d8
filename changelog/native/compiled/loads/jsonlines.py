"""Objects of JSON to COPY's text: `jsonlines.c`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from changelog.native.base.copy_cells import JsonColumn
from changelog.native.compiled.library import ffi, lib
from changelog.native.compiled.loads.batches import BatchRange
from changelog.native.compiled.loads.written import written


class JsonLines:
    """Writes lines of records whose values are objects."""

    def __init__(self, columns: Sequence[JsonColumn], *, all_known: bool, numbered: bool) -> None:
        """Take the columns of a line, in their order.

        Args:
            columns: each filled by a member of its own.
            all_known: leave objects with other members to the caller.
            numbered: write behind them the place of the record, and that it is not gone.
        """
        self._names = [ffi.from_buffer("uint8_t[]", column.name.encode()) for column in columns]
        entries = [
            (name, len(name), _takes(column), -1 if column.fraction is None else column.fraction,
             column.is_moment)
            for name, column in zip(self._names, columns, strict=True)
        ]  # fmt: skip
        self._columns = ffi.new("json_column[]", entries)
        self._count, self._all_known, self._numbered = len(entries), all_known, numbered
        self._out = ffi.gc(ffi.new("texts *"), lib.texts_free)

    def lines(self, records: BatchRange, chosen: array[int], first: int) -> tuple[int, bytes]:
        """Return the number of lines written, and the lines.

        What stands behind them is left to the caller: it is written otherwise, or refused.

        Args:
            records: among which they are; those that are chosen have values.
            chosen: their places.
            first: from which of these places on.
        """
        raw = records.batch.raw
        lib.texts_clear(self._out)
        done = lib.json_lines(
            self._columns, self._count, self._all_known, self._numbered, raw.values,
            raw.value_ends + records.first, ffi.from_buffer("int64_t[]", chosen), first,
            len(chosen), self._out,
        )  # fmt: skip
        return written(done, self._out)


def _takes(of: JsonColumn) -> int:
    bits = {
        lib.TAKES_TEXT: of.texts,
        lib.TAKES_NUMBER: of.numbers,
        lib.TAKES_TRUTH: of.truths,
        lib.TAKES_NESTED: of.nested,
    }
    return sum(bit for bit, takes in bits.items() if takes)
