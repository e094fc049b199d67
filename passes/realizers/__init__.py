"""Rewrites finished ONNX graphs into forms that engines support; `docs/realizers.md` lists the rewrites."""

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
