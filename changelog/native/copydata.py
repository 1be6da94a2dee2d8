"""COPY: what libpq gives on a connection; rows in Avro in its binary format, others in its text.

In C or in Python; the rows are in Python left to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.copy_cells import (
    WHOLE_KEY,
    WHOLE_VALUE,
    AvroField,
    AvroKind,
    AvroRows,
    CellForm,
    CopyCell,
    CsvColumn,
    JsonColumn,
)
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.copydata import read_copy, read_stream
    from changelog.native.compiled.loads.copyrows import RowCopier
    from changelog.native.compiled.loads.csvlines import CsvLines
    from changelog.native.compiled.loads.jsonlines import JsonLines
else:
    from changelog.native.plain.copydata import read_copy, read_stream
    from changelog.native.plain.loads.copyrows import RowCopier
    from changelog.native.plain.loads.csvlines import CsvLines
    from changelog.native.plain.loads.jsonlines import JsonLines

__all__ = [
    "WHOLE_KEY",
    "WHOLE_VALUE",
    "AvroField",
    "AvroKind",
    "AvroRows",
    "CellForm",
    "CopyCell",
    "CsvColumn",
    "CsvLines",
    "JsonColumn",
    "JsonLines",
    "RowCopier",
    "read_copy",
    "read_stream",
]
