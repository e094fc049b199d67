"""The `complex` dialect: ATen's operators on complex numbers stored as real pairs, [..., 2].

The source pass `real_pairs` moves an operator with complex inputs or outputs to this domain, unless the
operator works on pairs unchanged. A parameter that is complex in ATen takes a pair or a number.
"""

# Whichever module is imported first, all of ATen's are, in one order.
from .. import aten_functions  # noqa: F401
