"""Captures: from what the user has to a source graph."""
