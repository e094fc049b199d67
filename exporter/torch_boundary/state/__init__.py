"""Saves, replaces and restores the state of a model that running it may change."""
