"""One generation of a view: its rows, whole or refreshed, written to its sinks and certified.

States and a view come in, sealed and certified generations go out. The runs import it.
"""
