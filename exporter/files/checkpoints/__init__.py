"""Reads the names and places of the tensors in checkpoints."""

from .folder import read_checkpoint
