"""Artifacts for devices: plans, prepacked weights, streaming folders."""
