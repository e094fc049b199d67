"""Reads the nodes of a file, and finds what replaces them at another opset."""
