"""What a connector is, what its configuration means, what a record asks of a table. Pure.

Configurations and records come in, settings and operations go out. `changelog.connect` imports it.
"""
