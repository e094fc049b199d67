"""Installs the wheel and the source distribution in clean environments, and tries them there: `make test-dist`."""
