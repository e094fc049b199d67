"""Operators on spatial dimensions: windows, sliding windows and resampling."""
