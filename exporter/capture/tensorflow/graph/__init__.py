"""GraphDef to source graph: nodes, functions, control flow of both kinds, lists of tensors."""
