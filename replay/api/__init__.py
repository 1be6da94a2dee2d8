"""The log for people who write Python: what `from replay import Log` gives.

Settings come in, frozen values, tables of Arrow and frames of Spark go out. Nothing here decides
what is exact: it asks who does, before and after each read.
"""
