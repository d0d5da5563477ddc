"""``python -m veilset`` is the command line."""

from veilset.cli.main import main

main()
