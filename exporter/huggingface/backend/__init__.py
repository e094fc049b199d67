"""A backend for the exporters of transformers, which `opsetta.huggingface` registers."""
