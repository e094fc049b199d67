"""Checkpoints with integers as weights, which stay integers in the file: GPTQ, AWQ, compressed-tensors."""
