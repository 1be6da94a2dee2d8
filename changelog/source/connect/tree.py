"""Tables and their partitions, in SQL that waits for nobody's locks.

`pg_partition_tree` locks each table for a moment, and so waits for an ALTER TABLE that waits for
locks itself. When these are ours, nobody goes on: the server sees no circle, since one side of it
is capture.
"""

TREE = """
WITH RECURSIVE tree AS (
    SELECT oid AS root, oid FROM unnest(%(oids)s::oid[]) AS o(oid)
     UNION
    SELECT tree.root, c.oid
      FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
      JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
)"""
"""Begins a query: `tree` has each table of `oids` as `root` beside itself and its partitions."""
