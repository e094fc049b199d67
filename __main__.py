"""Runs the command line: `python -m opsetta`."""

from .exporter.command_line.cli import main

if __name__ == "__main__":
    main()
