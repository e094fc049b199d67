"""Analyses of finished graphs: execution order, lifetimes of values, and memory offsets."""

from .buffers import Buffer, GraphBuffers, buffers_of
from .offsets import Interval, align, assign_offsets, lower_bound, overlap
from .order import execution_order
from .parts import PartRules
from .phases import APPLY_GRADIENT, FORWARD, order_by_phase

__all__ = [
    "APPLY_GRADIENT",
    "FORWARD",
    "Buffer",
    "GraphBuffers",
    "Interval",
    "PartRules",
    "align",
    "assign_offsets",
    "buffers_of",
    "execution_order",
    "lower_bound",
    "order_by_phase",
    "overlap",
]
