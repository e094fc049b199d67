"""Replaces operators by others that a target supports."""
