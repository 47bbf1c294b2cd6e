"""`python -m kompakt_cli` is the kompakt command."""

from kompakt_cli.main import main

main()
