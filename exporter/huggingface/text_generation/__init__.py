"""Generates text with exported files: the choice of tokens, and the searches for sequences of them."""
