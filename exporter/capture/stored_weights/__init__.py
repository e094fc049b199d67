"""Weights that stay in files: they are matched with a model's parameters and buffers, but not loaded."""
