"""Records without a client."""

from dataclasses import dataclass, field


@dataclass
class Made:
    """A record with the methods of confluent-kafka's messages."""

    at: int
    of: int = 0
    k: bytes | None = b"k"
    v: bytes | None = b"v"
    h: list = field(default_factory=list)
    ms: int = 1_700_000_000_000

    def topic(self):
        return "things"

    def partition(self):
        return self.of

    def offset(self):
        return self.at

    def key(self):
        return self.k

    def value(self):
        return self.v

    def headers(self):
        return self.h or None

    def timestamp(self):
        return (1, self.ms)
