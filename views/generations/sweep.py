"""Remove what no checkpoint needs any more."""

from __future__ import annotations

from datetime import UTC, datetime

from replay.spark.files import Files
from replay.store.checkpoint import CheckpointStore, unnamed
from replay.store.stored import StoredStates

_TIDY_EVERY = 50  # commits of a manifest
_TIDY_HOURS = 1


def sweep(files: Files, store: CheckpointStore, stored: StoredStates) -> None:
    """Remove the layers that a run replaced, and now and then what killed runs left."""
    for place in stored.superseded:
        files.remove(place)
    for checkpoint in stored.checkpoints.values():
        topic = checkpoint.topic
        manifest = store.manifest(topic)
        if manifest.version % _TIDY_EVERY == 0:
            folder = store.layers_of(topic)
            for name in unnamed(manifest, files.names(folder), now=datetime.now(UTC)):
                files.remove(f"{folder}/{name}")
            store.tidy(topic, hours=_TIDY_HOURS)
