"""Captures the joint forward and backward graph of a model and its loss."""
