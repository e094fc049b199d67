"""Records the operators of a model's forward on fake tensors; see `recorder`."""
