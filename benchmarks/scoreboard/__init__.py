"""Rows that pipelines lose, keep, or alter under one seeded workload: `make scoreboard`.

What comes in are the seed and the length of the workload; what goes out is a table of pipelines, in
docs/scoreboard.md, and one JSON line.
"""
