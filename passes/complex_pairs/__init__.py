"""Replaces complex values of a source graph by pairs of real numbers."""
