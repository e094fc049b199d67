"""Runs of a model and of its captured graph at other sizes, on fake tensors."""
