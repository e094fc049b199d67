"""Reductions, scans, sorting and segments."""
