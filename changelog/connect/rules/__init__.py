"""Rules of connectors: configurations, their meaning, and operations from records. Pure.

Configurations and records come in, settings and operations go out. `changelog.connect` imports it.
"""
