"""What is installed: the parts that join by their entry points, and versions.

Names of entry points come in; modules and versions go out. Any package imports it.
"""
