"""Kernels that compute shapes alone, where torch has none or wrong ones for fake tensors."""
