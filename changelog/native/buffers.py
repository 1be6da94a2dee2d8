"""Messages, lines and records, many at a time; in C or in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changelog.native.base.records import NO_MEMORY, Record
from changelog.native.choice import IS_COMPILED

if TYPE_CHECKING or IS_COMPILED:
    from changelog.native.compiled.buffers import Records, Texts, WrittenPlaces
else:
    from changelog.native.plain.buffers import Records, Texts, WrittenPlaces

__all__ = ["NO_MEMORY", "Record", "Records", "Texts", "WrittenPlaces"]
