"""The installed parts: commands that join by entry points, and versions.

Names of entry points come in; modules and versions go out. Any package imports it.
"""
