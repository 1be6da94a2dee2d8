"""Avro records to values: rows of tables, arrays of Arrow, documents of JSON.

Bytes and schemas come in, values go out. Everybody above this package reads Avro through it, but
the verifier, which decodes by itself. Pure.
"""
