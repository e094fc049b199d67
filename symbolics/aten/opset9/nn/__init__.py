"""Layers of neural networks: activations, convolutions, normalization, losses, attention, resampling."""
