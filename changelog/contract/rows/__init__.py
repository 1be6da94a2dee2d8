"""Rows, their types and schemas: PostgreSQL's text to Avro.

A relation and the text of its fields come in; Avro schemas, bytes and the rules of their versions
go out. Whoever reads or writes rows may import it.
"""
