"""TensorFlow's files as sources: GraphDef, MetaGraph, SavedModel, checkpoints. TensorFlow is not needed."""
