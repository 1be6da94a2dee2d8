"""`python -m changelog` is the command `changelog`."""

from changelog.cli import main

if __name__ == "__main__":
    main()
