"""Special functions: Python arithmetic on values, series, and the coefficients of the approximations."""
