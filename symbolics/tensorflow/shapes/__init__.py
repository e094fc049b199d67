"""Operators on shapes, and those that rearrange elements."""
