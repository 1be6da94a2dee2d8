"""`python -m views` is `rebuild-view`."""

from views.cli import main

main()
