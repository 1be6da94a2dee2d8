"""What libpq gives on a connection; read in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.copydata import read_copy, read_stream
else:
    from changelog.native.plain.copydata import read_copy, read_stream

__all__ = ["read_copy", "read_stream"]
