"""Operators that change shapes, take parts, or join tensors."""
