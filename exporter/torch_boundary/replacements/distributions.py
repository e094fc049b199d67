"""Distributions of `torch.distributions` without the checks of their arguments in a capture.

The checks are branches on values that only raise errors. `python -O` leaves them out like `assert`; a capture
leaves both out.
"""

from __future__ import annotations

import contextlib

import torch

from ..process.process_state import replace_attribute


def skip_validation() -> contextlib.AbstractContextManager[None]:
    """Leave out the checks within the context, except those that the model asks for with `validate_args`."""
    return replace_attribute(torch.distributions.Distribution, "_validate_args", False)
