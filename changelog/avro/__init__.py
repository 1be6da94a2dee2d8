"""Avro records to values: rows of tables, arrays of Arrow, documents of JSON. Pure."""
