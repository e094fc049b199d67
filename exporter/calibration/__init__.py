"""Quantizes weights and activations to 8 or 16 bits, with ranges from calibration data."""
