"""A thread of the storm: what ends it is kept, and told at the end as a violation."""

import random
import threading


class Part(threading.Thread):
    """Works until `stop`; every choice is drawn from the seed and its own name."""

    def __init__(self, name, seed, stop):
        super().__init__(name=name, daemon=True)
        self._stopped = stop
        self._random = random.Random(f"{seed} {name}")  # noqa: S311 - for a seed
        self.failure: Exception | None = None

    def run(self):
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.failure = error

    def work(self):
        raise NotImplementedError
