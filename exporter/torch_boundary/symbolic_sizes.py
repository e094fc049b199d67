"""The functions and symbols of torch's symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    Max,
    Min,
    Mod,
    PythonMod,
    RoundToInt,
    TruncToInt,
)

CHECK = f"torch.{torch._check.__name__}"
"""The function that tells torch.export the range of a number, for messages."""


def new_symbol(environment: ShapeEnv, name: str, size: int) -> Any:
    """A new symbol for an unbounded size, which is 1 in the example."""
    from torch._dynamo.source import ConstantSource

    return environment.create_symbol(size, ConstantSource(name), DimDynamic.DYNAMIC, constraint_dim=None)
