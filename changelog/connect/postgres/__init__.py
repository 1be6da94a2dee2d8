"""A sink's database: connection, tables, rows, and the stored offsets.

Settings and operations from records come in; rows and offsets go out, in one transaction.
`changelog.connect` imports it.
"""
