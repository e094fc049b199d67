"""Annotates ONNX nodes whose result may overwrite an operand."""
