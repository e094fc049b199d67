"""Running models: onnxruntime sessions, eager calls beside them, and comparing the two."""
