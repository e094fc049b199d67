"""Weights that stay in files: matched with the parameters and buffers of a model, and never loaded."""
