"""Runs pieces of the verifier's work: in threads of this process, or by an engine with machines.

An engine is trusted with nothing but to call what it is given. It may do so twice, or forget a
piece, or lose what came of it: who has given the work looks whether each piece was done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

Given = TypeVar("Given")


class Launcher(Protocol):
    """Runs work; `views.verify.processes.threads.in_threads` does so here."""

    def __call__(self, work: Callable[[Given], str], items: Sequence[Given], /) -> Iterator[str]:
        """Run the work on each argument; yield the results in any order.

        The work and all that is given can be pickled; what comes of it is a short text.
        """
        ...
