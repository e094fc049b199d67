"""Reductions, order, counts and statistics."""
