"""Analyses of finished graphs: execution order, lifetimes of values, and memory offsets."""

from .buffers import Buffer, Memory, buffers_of
from .offsets import Interval, assign_offsets, lower_bound, overlap
from .order import execution_order

__all__ = [
    "Buffer",
    "Interval",
    "Memory",
    "assign_offsets",
    "buffers_of",
    "execution_order",
    "lower_bound",
    "overlap",
]
