"""Lowering: source passes, symbolic functions node by node, ONNX passes; and conversion of ONNX files."""
