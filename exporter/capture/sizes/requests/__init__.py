"""The dynamic dimensions that the caller asks for."""
