"""Views as compacted topics of Kafka, which other projects can read as a log.

Rows are keyed records; generations are published and brought forward by transactions.
"""
