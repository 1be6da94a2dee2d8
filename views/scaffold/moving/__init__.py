"""Configurations of other programs, translated into projects: pgsync, Debezium, Sequin.

A file of another program comes in; settings, views, and an account of each of its keys go out.
"""
