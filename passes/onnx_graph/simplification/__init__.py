"""Rewrites that leave every result as it is: identity arithmetic, unused nodes, values that are constant."""
