"""Operators on images: windows, pixels at coordinates, regions, sizes."""
