"""Installs the wheel and the source distribution in new environments, and tries them: `make test-dist`."""
