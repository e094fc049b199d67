"""Makes ATen's type promotion explicit as casts in a source graph."""
