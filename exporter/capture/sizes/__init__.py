"""The sizes for which a captured graph is valid: trials of the model and the graph at other sizes."""
