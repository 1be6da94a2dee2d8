"""Places of records: topics, partitions, frontiers, and the part of a table that a topic holds.

Places come in, and what may be said of them goes out. Whoever reads or writes topics may import it.
"""
