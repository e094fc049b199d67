"""Operators that ATen has only for GPUs: fused kernels, and those of cuDNN and MIOpen."""
