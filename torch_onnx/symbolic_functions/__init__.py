"""Symbolic functions of torch.onnx: what they get, what they return, and how they are registered."""
