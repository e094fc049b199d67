"""Checks of a message before it becomes a graph."""
