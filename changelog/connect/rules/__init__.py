"""Rules of connectors: configurations, their meaning, and operations that records ask for. Pure.

Configurations and records come in, settings and operations go out. `changelog.connect` imports it.
"""
