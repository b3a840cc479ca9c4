"""``python -m weft`` is the command line."""

from weft.cli.main import main

main()
