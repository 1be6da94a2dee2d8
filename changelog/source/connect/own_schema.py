"""The schema `changelog` at the source: what capture's own triggers and tables stand in."""

DROP_IF_EMPTY = """
DO $block$ BEGIN
    DROP SCHEMA IF EXISTS changelog;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END $block$;
"""
"""SQL that removes the schema unless something of ours or of others is still in it."""
