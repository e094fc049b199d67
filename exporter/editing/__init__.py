"""Changes to ONNX models that their users ask for: sizes, names, parts, element types."""
