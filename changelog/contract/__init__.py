"""The format of the log: pure values, no input or output.

Bytes and text come in, records, schemas and frontiers go out. Everybody may import it; it imports
nothing of ours.
"""
