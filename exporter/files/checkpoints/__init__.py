"""Reads the names and file positions of the tensors in checkpoints."""
