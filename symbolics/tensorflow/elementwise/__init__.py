"""Elementwise operators of TensorFlow."""
