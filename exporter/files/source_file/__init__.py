"""Lossless files of source graphs: writing, reading, and what equality of two source graphs means."""
