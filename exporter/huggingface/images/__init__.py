"""Images as inputs of models that generate text."""
