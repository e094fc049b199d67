"""The jobs of a sweep: their product, their fingerprints, and their execution."""
