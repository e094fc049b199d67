"""Operators of tf.image, and of boxes in images."""
