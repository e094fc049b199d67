"""The containers of arguments and results: torch's pytree, and what is registered with it."""
