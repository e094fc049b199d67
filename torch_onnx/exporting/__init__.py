"""`torch.onnx.export` on top of opsetta, and its use in other code."""
