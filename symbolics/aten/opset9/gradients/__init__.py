"""Gradients of ATen's operators, where torch's own decomposition is missing or is no good ONNX."""
