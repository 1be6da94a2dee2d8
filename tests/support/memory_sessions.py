"""Sessions of the page that were ended, in this process alone."""


class MemorySessions:
    """Those that have ended; `away` says that they cannot be told to others."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self.away: Exception | None = None

    def end(self, name: str, until: int) -> None:
        assert until
        if self.away is not None:
            raise self.away
        self._ended.add(name)

    def has_ended(self, name: str) -> bool:
        return name in self._ended
