"""What devices get besides the model file."""
