"""Replaces in-place operators of a source graph by functional operators."""
