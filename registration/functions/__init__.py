"""Registers symbolic functions, looks them up by operator and opset, calls them, and checks their results."""
