"""Captures PyTorch models: chooses the way to capture, and explains failures."""
