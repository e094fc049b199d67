"""Random numbers."""
