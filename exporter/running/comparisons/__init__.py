"""Compares results: of a model with eager PyTorch, of two files, and of the nodes of one model."""
