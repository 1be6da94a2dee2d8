"""Views as tables of Iceberg: schemas, data files, snapshots, commits of a catalogue.

Rows come in; a tagged snapshot for each generation goes out, and a main branch at the served one.
"""
