"""Rewrites of pooling, convolution and Resize of images."""
