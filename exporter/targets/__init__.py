"""Descriptions of the consumers of ONNX files, and what writes and checks a model for one of them."""
