"""Whether the nodes of an ONNX graph are valid by the schemas of their operators."""
