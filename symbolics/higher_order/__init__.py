"""torch.export's higher-order operators: cond, while_loop, scan, map."""
