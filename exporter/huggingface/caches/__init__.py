"""Caches of keys and values, and other states, of models that generate text."""
