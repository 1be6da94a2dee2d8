"""Decodes records, JSON or Avro, into operations on rows. Pure.

Bytes of records, and schemas, come in; operations and lines of COPY go out.
"""
