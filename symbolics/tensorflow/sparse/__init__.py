"""Sparse tensors: positions, values and a dense shape."""
