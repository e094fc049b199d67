"""Describes targets (runtimes and devices that read ONNX files), and writes and checks models for them."""
