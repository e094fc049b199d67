"""The operators of torch: overloads, decompositions, and higher-order operators."""
