"""Bytes: how a model becomes a file, and how a file appears on a disk."""
