"""Symbolic sizes for direct capture: polynomials, numbers of torch made of them, guards and limits."""
