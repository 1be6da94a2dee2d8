"""Names of places in a warehouse."""

from __future__ import annotations


def of_deltalake(place: str) -> str:
    """Give the URI of a place as deltalake names it, and everybody but Spark."""
    return place.replace("s3a://", "s3://", 1)
