"""Lowers source graphs to ONNX (source passes, symbolic functions, ONNX passes), and converts ONNX files."""
