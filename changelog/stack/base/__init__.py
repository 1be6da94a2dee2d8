"""Folders, ports, processes and what is remembered of them.

Names come in; places, free ports and processes that end with us go out. The rest of the stack may
import it.
"""
