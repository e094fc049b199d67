"""Matrix products and their weights: Gemm, transposed weights, factors folded into weights."""
