"""ATen's type promotion becomes explicit casts in a source graph."""
