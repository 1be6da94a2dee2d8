"""Where records lie: topics, partitions, frontiers, and what a topic holds of a table.

Places come in, and what may be said of them goes out. Whoever reads or writes topics may import it.
"""
