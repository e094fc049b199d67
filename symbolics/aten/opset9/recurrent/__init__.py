"""Recurrent layers, their cells, and packed sequences."""
