"""Reading and writing by index tensors, and choosing by condition."""
