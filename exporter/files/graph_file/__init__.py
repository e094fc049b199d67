"""Writes and reads source graphs without loss, and compares two source graphs."""
