"""Infers types, sizes and constant values while a graph is built."""
