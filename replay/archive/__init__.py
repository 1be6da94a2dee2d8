"""An archive of the log on object storage: every record before compaction, and states from it.

The records, frontiers and schemas of the log come in; segments of Parquet files go out, and states
of tables that are read from them.
"""
