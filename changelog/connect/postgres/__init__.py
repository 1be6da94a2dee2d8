"""A sink's database: connection, tables, rows, and the stored offsets.

Settings and what records ask for come in; rows and places go out, in one transaction.
`changelog.connect` imports it.
"""
