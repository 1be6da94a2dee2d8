"""Compare the expected rows of a view with the rows that are served.

Two tables come in, differences and a report go out.
"""
