"""Conditions on sizes: what torch records, and at which sizes they change."""
