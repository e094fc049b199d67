"""In-place operators of a source graph become functional operators."""
