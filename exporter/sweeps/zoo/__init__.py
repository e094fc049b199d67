"""Zoos: the models of a sweep, in a Python file or in a folder of ONNX files."""
