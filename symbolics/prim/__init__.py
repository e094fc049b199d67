"""Numbers, lists, branches and loops as TorchScript has them: the dialects `prim`, `list` and `promotion`."""
