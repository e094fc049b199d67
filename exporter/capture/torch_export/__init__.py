"""Capture by torch.export: from an exported program to a source graph."""
