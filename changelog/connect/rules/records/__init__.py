"""What a record is, and what it asks of a table: JSON or Avro to operations on rows. Pure.

Bytes of records and schemas come in, operations and lines of COPY go out.
"""
