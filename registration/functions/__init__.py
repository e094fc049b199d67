"""Symbolic functions: registered, found for an operator at an opset, called, and their results checked."""
