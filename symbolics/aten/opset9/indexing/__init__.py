"""Reads and writes with index tensors, and selection by conditions."""
