"""Options of a view's table of Iceberg: `views/NAME.iceberg.json`."""

from __future__ import annotations

from views.sinks.options import Options


class IcebergOptions(Options):
    """Options of one view."""

    # the table that readers open, `namespace.table`; by default the view's name in the namespace
    # of the settings
    table: str = ""
