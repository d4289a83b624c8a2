"""`python -m earmark` is `earmark`."""

from earmark.cli import main

main()
