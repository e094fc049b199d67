"""Target passes that write a graph as one consumer reads it; each keeps the results of the model."""
