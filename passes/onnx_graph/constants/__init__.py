"""Constant folding, the weights that it computes, and equal initializers."""
