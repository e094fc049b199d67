"""Products and matrices."""
