"""`python -m changelog` is the command `changelog`."""

from changelog.cli import main

main()
