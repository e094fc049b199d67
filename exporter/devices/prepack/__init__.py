"""Weights packed ahead of time for one machine, and checks that other machines do not use them.

A prepacked folder holds the portable model, the same model with packed weights, and `prepack.json`, which
says where the packed weights are valid. `docs/prepack.md` describes the files.
"""

from typing import TYPE_CHECKING

from ....registration.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from .manifest import PrepackStatus
    from .packed_models import prepack
    from .packed_session import load_session
    from .packed_weights import PackedWeight, prepack_conv, prepack_linear
    from .saving import save_prepacked

__all__ = [
    "PackedWeight",
    "PrepackStatus",
    "load_session",
    "prepack",
    "prepack_conv",
    "prepack_linear",
    "save_prepacked",
]

if not TYPE_CHECKING:
    # A process that opens a session needs neither onnx nor torch, which take longer to import than it opens.
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".manifest": ("PrepackStatus",),
            ".packed_session": ("load_session",),
            ".packed_models": ("prepack",),
            ".packed_weights": ("PackedWeight", "prepack_conv", "prepack_linear"),
            ".saving": ("save_prepacked",),
        },
    )
