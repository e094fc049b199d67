"""Captures TensorFlow files: GraphDef, MetaGraph, SavedModel, checkpoints. TensorFlow is not needed.

What is malformed is a `ModelFileError`; what has no ONNX form is a `CaptureError`.
"""
