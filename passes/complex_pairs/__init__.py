"""Complex values of a source graph become pairs of real numbers."""
