"""Direct capture: runs a model once on fake tensors and records its operators, without torch.export."""
