"""The `transformers` dialect: operators registered by the transformers library, which is not imported."""
