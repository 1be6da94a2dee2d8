"""What helpers of the verifier are given to do: generators of tables, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import pyarrow as pa

from views.verify.values.faults import SetApart

Work = Generator[pa.Table, None, SetApart | None]
"""Returns tables, and returns the records that it set apart."""

Job = tuple[Callable[..., Work], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a job."""

    set_apart: SetApart | None
