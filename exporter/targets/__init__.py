"""Consumers of ONNX files as data: what each takes, rewrites for it, and the check of a model against it."""
