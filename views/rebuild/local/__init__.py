"""Rows of tables beside the follower: those that a change can lead to, found by their columns.

Records of the stored states come in, few of them go out as small frames of Spark. Only a refresh
imports it.
"""
