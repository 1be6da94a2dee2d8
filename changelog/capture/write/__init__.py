"""Changes to records: rows, messages of the application, schema changes.

Changes of the stream come in, records go out to the producer.
"""
