"""The `transformers` dialect: operators that the transformers library registers, which is not imported."""
