"""Answers to people and scripts about capture: check, status, metrics, requests.

Settings come in; findings, numbers and requests go out. The commands import it.
"""
