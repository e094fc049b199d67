"""Lowering: source passes, symbolic functions node by node, target passes; and conversion of ONNX files."""
