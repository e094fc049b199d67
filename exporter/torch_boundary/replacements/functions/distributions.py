"""Leaves out the argument checks of `torch.distributions` in a capture.

The checks are branches on values that only raise errors. `python -O` leaves them out like `assert`; a capture
leaves both out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.distributions import Distribution


@contextlib.contextmanager
def skip_validation() -> Iterator[None]:
    """Leave out the checks within the context, except those that the model asks for with `validate_args`."""
    # Private, because torch has a public function only to set the default. The value found here is restored:
    # it is not always True, because `torch.compile` sets it to False for the whole process.
    default = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(default)
