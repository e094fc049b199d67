"""Changes a model so that it needs less memory: reorders, splits or repeats nodes."""
