"""Recognises operators that are written out as several nodes, and writes the operator of the opset."""
