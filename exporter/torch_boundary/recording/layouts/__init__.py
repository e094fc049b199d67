"""Layouts of results, by families of operators."""
