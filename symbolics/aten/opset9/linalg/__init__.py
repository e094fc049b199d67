"""Linear algebra: products, factorizations, systems, eigenvalues."""
