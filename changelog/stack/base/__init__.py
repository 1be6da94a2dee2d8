"""Folders, ports and processes of servers, and the remembered state of a stack.

Names come in; places, free ports and processes that end with us go out. The rest of the stack may
import it.
"""
