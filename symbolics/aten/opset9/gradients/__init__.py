"""Gradients of ATen's operators for which torch's decomposition is missing or inefficient in ONNX."""
