"""Preparation of an attempt: its environment, the decision how to start, losses since the last.

Settings, slot, log and catalogue come in; a way to begin goes out, or a refusal that says why.
"""
