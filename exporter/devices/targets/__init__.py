"""Describes consumers of ONNX files, and writes and checks models for them."""
