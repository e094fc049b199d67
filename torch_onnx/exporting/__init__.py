"""`torch.onnx.export` over opsetta, and its place in other people's code."""
