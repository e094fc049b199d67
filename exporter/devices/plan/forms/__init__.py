"""Writes a plan as JSON, as tables in C, as metadata, or as a picture."""
