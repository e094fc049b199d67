"""Seeded bugs: how many of them the tests find."""
