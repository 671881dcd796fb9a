"""`python -m fedmerit`: the command line."""

from fedmerit.cli import main

main()
