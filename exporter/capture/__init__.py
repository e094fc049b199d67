"""Captures a user's model as a source graph."""
