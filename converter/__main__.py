"""Run the ``convert`` command as ``python -m converter``."""

from converter.cli import main

main()
