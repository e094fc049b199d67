"""Rewrites finished ONNX graphs into forms that engines support; `docs/realizers.md` lists the rewrites."""

from typing import TYPE_CHECKING

from ...registration.lazy_imports import lazy_imports

__all__ = [
    "ChannelsFirst",
    "ChannelsLast",
    "ConvertElementTypes",
    "EqualizeChannels",
    "ExplicitFanOut",
    "FlattenToReshape",
    "FoldBatchNorm",
    "FuseActivations",
    "FuseCausalConvolutions",
    "PrefixNames",
    "ReshapeToFlatten",
    "SliceGraph",
    "SplitActivations",
    "StripTraining",
    "UnrollLoops",
    "UnrollRecurrent",
    "slice_graph",
]

if TYPE_CHECKING:
    from .activations import FuseActivations, SplitActivations
    from .causal_convolutions import FuseCausalConvolutions
    from .element_types import ConvertElementTypes
    from .equalize_channels import EqualizeChannels
    from .fan_out import ExplicitFanOut
    from .flatten import FlattenToReshape, ReshapeToFlatten
    from .fold_batch_norm import FoldBatchNorm
    from .layouts import ChannelsFirst, ChannelsLast
    from .prefix_names import PrefixNames
    from .slicing import SliceGraph, slice_graph
    from .strip_training import StripTraining
    from .unroll_loops import UnrollLoops
    from .unroll_recurrent import UnrollRecurrent
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".activations": (
                "FuseActivations",
                "SplitActivations",
            ),
            ".causal_convolutions": ("FuseCausalConvolutions",),
            ".element_types": ("ConvertElementTypes",),
            ".equalize_channels": ("EqualizeChannels",),
            ".fan_out": ("ExplicitFanOut",),
            ".flatten": (
                "FlattenToReshape",
                "ReshapeToFlatten",
            ),
            ".fold_batch_norm": ("FoldBatchNorm",),
            ".layouts": (
                "ChannelsFirst",
                "ChannelsLast",
            ),
            ".prefix_names": ("PrefixNames",),
            ".slicing": (
                "SliceGraph",
                "slice_graph",
            ),
            ".strip_training": ("StripTraining",),
            ".unroll_loops": ("UnrollLoops",),
            ".unroll_recurrent": ("UnrollRecurrent",),
        },
    )
