"""Replacements of torch's functions and kernels while a model is captured."""
