"""The jobs of the verifier's helpers: generators of tables, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import pyarrow as pa

from views.verify.values.faults import Quarantine

Work = Generator[pa.Table, None, Quarantine | None]
"""Returns tables, and returns the records that it quarantined."""

Job = tuple[Callable[..., Work], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a job."""

    quarantine: Quarantine | None
