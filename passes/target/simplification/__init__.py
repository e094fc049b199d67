"""Rewrites that leave every result as it is: identity arithmetic, merged shape changes, equal weights."""
