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
    from .fan_out import ExplicitFanOut
    from .model_interface.layouts import ChannelsFirst, ChannelsLast
    from .model_interface.prefix_names import PrefixNames
    from .model_interface.slicing import SliceGraph, slice_graph
    from .operators.activations import FuseActivations, SplitActivations
    from .operators.causal_convolutions import FuseCausalConvolutions
    from .operators.flatten import FlattenToReshape, ReshapeToFlatten
    from .operators.unroll_loops import UnrollLoops
    from .operators.unroll_recurrent import UnrollRecurrent
    from .stored_values.element_types import ConvertElementTypes
    from .stored_values.equalize_channels import EqualizeChannels
    from .stored_values.fold_batch_norm import FoldBatchNorm
    from .strip_training import StripTraining
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".operators.activations": (
                "FuseActivations",
                "SplitActivations",
            ),
            ".operators.causal_convolutions": ("FuseCausalConvolutions",),
            ".stored_values.element_types": ("ConvertElementTypes",),
            ".stored_values.equalize_channels": ("EqualizeChannels",),
            ".fan_out": ("ExplicitFanOut",),
            ".operators.flatten": (
                "FlattenToReshape",
                "ReshapeToFlatten",
            ),
            ".stored_values.fold_batch_norm": ("FoldBatchNorm",),
            ".model_interface.layouts": (
                "ChannelsFirst",
                "ChannelsLast",
            ),
            ".model_interface.prefix_names": ("PrefixNames",),
            ".model_interface.slicing": (
                "SliceGraph",
                "slice_graph",
            ),
            ".strip_training": ("StripTraining",),
            ".operators.unroll_loops": ("UnrollLoops",),
            ".operators.unroll_recurrent": ("UnrollRecurrent",),
        },
    )
