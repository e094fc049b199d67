"""Reads the names and places of the tensors in checkpoints."""
