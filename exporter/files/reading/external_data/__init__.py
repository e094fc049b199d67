"""Tensors in other files: external data, memory mapping, packed weights."""
