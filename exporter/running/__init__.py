"""Runs models in onnxruntime and in eager PyTorch, and compares the results."""
