"""Views as compacted topics of Kafka, which other projects can read as a log.

Rows come in; keyed records go out, published and brought forward by transactions.
"""
