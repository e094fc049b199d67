"""Packed sequences in a source graph."""
