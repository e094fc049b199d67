"""Sweeps: every model of a zoo at every opset, shape, element type and target, a row of results for each."""
