"""TorchScript's numbers, lists, branches and loops: the dialects `prim`, `list` and `promotion`."""
