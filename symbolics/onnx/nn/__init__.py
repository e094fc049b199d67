"""Operators of neural networks: activations, normalization and recurrent layers."""
