"""A thread of the storm: what ends it is kept, and told at the end as a violation."""

import random
import threading

_OWED = 0.5
"""So often the next one that has not happened yet is drawn, and not any."""


class Part(threading.Thread):
    """Works until `stop`; every choice is drawn from the seed and its own name.

    `pace`: by how much the time between faults is longer than drawn.
    """

    pace = 1.0

    def __init__(self, name, seed, stop):
        super().__init__(name=name, daemon=True)
        self._stopped = stop
        self._random = random.Random(f"{seed} {name}")  # noqa: S311 - for a seed
        self._owed: list | None = None
        self.failure: Exception | None = None

    def run(self):
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.failure = error

    def work(self):
        raise NotImplementedError

    def draw(self, weights):
        """Draw one by its weight; those that have not happened yet come before their turn."""
        if self._owed is None:
            self._owed = self._random.sample(list(weights), len(weights))
        if self._owed and self._random.random() < _OWED:
            return self._owed.pop(0)
        (drawn,) = self._random.choices(list(weights), list(weights.values()))
        return drawn

    def owe(self, kind):
        """Take note that what was drawn did not happen."""
        if self._owed is not None and kind not in self._owed:
            self._owed.append(kind)
