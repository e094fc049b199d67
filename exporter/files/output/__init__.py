"""Output paths, and how files are written completely or not at all."""
