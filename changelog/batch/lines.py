"""Lines of COPY's text format as columns of fields; see "COPY", "File Formats", of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from changelog.batch.fields import Fields, Mask
from changelog.contract.errors import ProtocolError

_TAB, _LINE_FEED, _BACKSLASH, _N = b"\t\n\\N"
_NULL_BYTES = 2
_PADDING = bytes(2)


def fields_of_lines(lines: Sequence[bytes], width: int) -> tuple[list[Fields], Mask]:
    r"""Find the fields of lines that come without their line feed.

    Returns:
        The fields of each column for the plain lines, and which lines are plain. A line with an
        escape other than `\N`, the null, is not: its text is not what stands there.

    Raises:
        ProtocolError: a line has another number of fields.
    """
    buffer = np.frombuffer(b"\n".join([*lines, _PADDING]), dtype=np.uint8)
    text = buffer[: -len(_PADDING)]
    ends = np.flatnonzero((text == _TAB) | (text == _LINE_FEED))
    if len(ends) != width * len(lines) or (text[ends[width - 1 :: width]] != _LINE_FEED).any():
        raise ProtocolError(f"a line of COPY has other than {width} fields")
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    size = ends - starts
    null = (size == _NULL_BYTES) & (buffer[starts] == _BACKSLASH) & (buffer[starts + 1] == _N)
    plain = _without_escapes(text, ends[width - 1 :: width], null.reshape(-1, width))
    size[null] = 0
    start = starts.reshape(-1, width)[plain]
    length = size.reshape(-1, width)[plain]
    absent = null.reshape(-1, width)[plain]
    columns = [Fields(buffer, start[:, at], length[:, at], absent[:, at]) for at in range(width)]
    return columns, plain


def _without_escapes(text: np.ndarray, line_ends: np.ndarray, null: Mask) -> Mask:
    plain: Mask = np.ones(len(line_ends), dtype=bool)
    slashes = np.flatnonzero(text == _BACKSLASH)
    if len(slashes) != int(null.sum()):
        count = np.bincount(np.searchsorted(line_ends, slashes), minlength=len(line_ends))
        plain = count == null.sum(axis=1)
    return plain
