"""The arithmetic of symbolic sizes: exact polynomials, and dimensions of shapes as polynomials."""
