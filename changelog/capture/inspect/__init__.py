"""What people and scripts ask of capture: check, status, metrics, requests.

Settings come in; findings, numbers and requests go out. The commands import it.
"""
