"""Marks the nodes that stand for in-place operators of the source model."""
