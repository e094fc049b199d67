"""Replaces code of transformers, torchvision and torch's modules by code that a capture can record."""
