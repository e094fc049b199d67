"""Ragged tensors: values with the splits of their rows."""
