"""ONNX's own operators as a source dialect: what changed its meaning, and what an opset does not have yet."""
