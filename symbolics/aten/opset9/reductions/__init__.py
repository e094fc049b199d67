"""Reductions, sorting, counting and statistics."""
