"""Building blocks that symbolic functions of several dialects share."""
