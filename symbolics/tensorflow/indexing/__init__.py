"""Reads and writes by index, and searches."""
