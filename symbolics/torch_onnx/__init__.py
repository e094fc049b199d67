"""The operators of `torch.onnx.ops`: ONNX operators that a PyTorch model calls by name."""
