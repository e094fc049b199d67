"""Captures models, lowers them, runs and verifies them, reads and writes files; the package has the names."""
