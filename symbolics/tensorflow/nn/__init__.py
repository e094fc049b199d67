"""TensorFlow operators of neural networks: tf.nn, tf.image and tf.quantization."""
