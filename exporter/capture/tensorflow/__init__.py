"""Captures TensorFlow files: GraphDef, MetaGraph, SavedModel, checkpoints. TensorFlow is not needed."""
