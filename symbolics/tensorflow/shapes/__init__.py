"""Operators on shapes, and those that move elements without reading them."""
