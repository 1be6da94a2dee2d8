"""Protobuf as a schema registry frames it: schemas, messages, and their values.

Schemas and framed bytes come in; columns, values and framed messages go out.
"""
