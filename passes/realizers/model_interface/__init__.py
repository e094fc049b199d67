"""Changes the inputs and outputs of a model, its names, and the layout of its images."""
