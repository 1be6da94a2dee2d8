"""A broker that comes back without the last records of a partition."""

from __future__ import annotations

import struct
from pathlib import Path

from changelog.stack.servers.kafka import KafkaServer


def cut_after(path: Path, batches: int) -> None:
    """Cut a segment behind its first batches, as a disk that lost its last writes would."""
    raw, at = path.read_bytes(), 0
    for _ in range(batches):
        _, length = struct.unpack(">qi", raw[at : at + 12])
        at += 12 + length
    with path.open("r+b") as file:
        file.truncate(at)


def lose_records(server: KafkaServer, topic: str, batches: int) -> None:
    """Restart the broker without the last records of a partition."""
    server.stop()
    data = server.directory / "data"
    folder = data / f"{topic}-0"
    cut_after(folder / "00000000000000000000.log", batches)
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in folder.glob(pattern):
            path.unlink()
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    server.start()
