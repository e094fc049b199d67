"""The `quantized_decomposed` dialect: affine quantization as explicit operators."""
