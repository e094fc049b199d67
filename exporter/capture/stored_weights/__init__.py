"""Weights that a model does not hold: matched with its parameters and buffers, and never loaded."""
