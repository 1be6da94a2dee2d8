"""What the Delta tables of a warehouse have in common."""

from __future__ import annotations

from deltalake import DeltaTable

SETTINGS = {"delta.logRetentionDuration": "interval 1 days"}
"""Of the tables that get a commit with each run. Whoever opens one lists all the commits that are
there, and Delta's own thirty days of them are 100,000 and more where views are followed."""


def adopt_settings(table: DeltaTable) -> None:
    """Give a table the settings, where it was made before there were any."""
    if not SETTINGS.items() <= table.metadata().configuration.items():
        table.alter.set_table_properties(SETTINGS)


def of_deltalake(place: str) -> str:
    """Give the URI of a place as deltalake names it, and everybody but Spark."""
    return place.replace("s3a://", "s3://", 1)
