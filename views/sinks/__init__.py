"""Where a view is served from: one contract, and a folder for each kind.

Rows come in; a generation that is sealed, served or dropped goes out.
"""
