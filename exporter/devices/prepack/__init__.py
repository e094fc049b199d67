"""Weights packed ahead of time for one machine, and checks that other machines do not use them.

A prepacked folder holds the portable model, the same model with packed weights, and `prepack.json`, which
says where the packed weights are valid. `docs/prepack.md` describes the files.
"""

from .manifest import PrepackStatus
from .packed_session import load_session
from .packed_weights import PackedWeight, prepack_conv, prepack_linear
from .saving import save_prepacked

__all__ = [
    "PackedWeight",
    "PrepackStatus",
    "load_session",
    "prepack_conv",
    "prepack_linear",
    "save_prepacked",
]
