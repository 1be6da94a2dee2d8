"""The log for people who write Python: what `from replay import Log` gives.

Settings come in, frozen values, tables of Arrow and frames of Spark go out. Whether a read is exact
is not decided here: each one asks `replay.verdict` before and after.
"""
