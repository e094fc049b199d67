"""Prepares a file's model for conversion: inlines its functions, and infers types and shapes."""
