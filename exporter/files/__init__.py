"""Reads and writes model files."""
