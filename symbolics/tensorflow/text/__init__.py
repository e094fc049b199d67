"""Strings, and the hashes of strings."""
