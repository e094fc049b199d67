"""Weights in files: tensors that stay there until they are read, and what writes tensors."""
