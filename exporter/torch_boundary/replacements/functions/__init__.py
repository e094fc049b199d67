"""Functions of torch that a capture records otherwise than torch itself does."""
