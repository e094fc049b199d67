"""What changed between versions of ONNX operators: meanings, implied arguments and old attributes."""
